"""What every party tells of itself before training, beside its schema: what its policy permits of the run."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from isthmus.core.kinds import Kind
from isthmus.wire.wire import Wire

OPEN = "open"  # a policy that refuses nothing
_SIZE = 8  # bytes of a hash of what a policy permits; all zeros stand for an open one


def introduce(wire: Wire, permits: Mapping[int, str]) -> None:
    """Tell all parties what the policies of this host's silos permit, and keep what theirs do in ``wire.introduced``.

    ``permits``: hashes in hexadecimal by the number of the silo; silos that are not in it have an open policy. Nothing
    of a rule is in a hash. Books of what crossed hold what training needs, and this is not in them.
    """
    mine = [bytes.fromhex(permits.get(silo, "00" * _SIZE)) for silo in wire.mine]
    rows = torch.tensor([list(each) for each in mine], dtype=torch.uint8).reshape(len(mine), _SIZE)
    with wire.ledger.unrecorded():
        told = wire.share(Kind.SCHEMA, rows)
    for silo, row in enumerate(told.tolist()):
        about = wire.introduced.setdefault(wire.party(silo), {})
        about["permits"] = bytes(row).hex() if any(row) else OPEN
