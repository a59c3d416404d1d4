"""Only cross edges that both silos list take part: claiming one gives nothing, and tells nothing of what exists."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.federation.federation import open_federation
from isthmus.federation.handshake import plan_halo
from isthmus.graph.cut import split_graph
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo, keep_edges
from isthmus.launch.silos import agree_before_merge
from isthmus.runs.config import resolve
from isthmus.runs.data_config import DataConfig
from isthmus.wire.local import LocalWire
from tests.helpers.command import SMALL, refuse
from tests.helpers.small import losses, owners, run_parts, small_graph


def silos() -> list[Silo]:
    return split_graph(small_graph(24, 40), owners(3, 24), 3)


def claiming(silo: Silo, node: int, owner: int) -> Silo:
    """The silo with one more edge, from a far node of its own invention to its first."""
    edge = torch.tensor([[silo.n + silo.h], [0]])
    assert silo.edge_attr is not None and silo.edge_time is not None
    return replace(
        silo,
        halo_ids=np.append(silo.halo_ids, node),
        halo_owner=torch.cat([silo.halo_owner, torch.tensor([owner])]),
        edge_index=torch.cat([silo.edge_index, edge], 1),
        edge_attr=torch.cat([silo.edge_attr, silo.edge_attr[:1]]),
        edge_time=torch.cat([silo.edge_time, silo.edge_time[:1]]),
    )


def stranger(parts: list[Silo]) -> int:
    """A node of silo 0 that silo 2 has no edge to."""
    return next(int(i) for i in parts[0].ids if i not in parts[2].halo_ids)


class Overheard(LocalWire):
    """Remembers every letter that silo 2 receives."""

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        self.heard = [*getattr(self, "heard", []), *(x for (_, to), x in sorted(letters.items()) if to == 2)]
        return letters


def test_a_claimed_edge_gives_nothing_unless_claims_are_taken() -> None:
    parts = silos()
    wanted = stranger(parts)
    parts[2] = claiming(parts[2], wanted, owner=0)
    mutual, claimed = (open_federation(LocalWire(3), parts, edges=edges) for edges in ("mutual", "claimed"))
    row = parts[0].ids.tolist().index(wanted)
    assert row not in mutual.plan.send[0, 2].tolist() and row in claimed.plan.send[0, 2].tolist()
    assert mutual.silos[2].h == parts[2].h - 1 and not bool(mutual.alone.any())
    (note,) = mutual.notes
    assert note.startswith("silo-2 lists 1 edges that silo-0 does not list") and note.endswith("They take no part.")
    assert int(claimed.alone.sum()) == 1 and not claimed.notes[0].endswith("They take no part.")


def test_who_claims_an_edge_does_not_learn_whether_its_far_end_exists() -> None:
    heard = []
    for node in (stranger(silos()), 10**9):
        parts = silos()
        parts[2] = claiming(parts[2], node, owner=0)
        wire = Overheard(3)
        open_federation(wire, parts)
        heard.append(wire.heard)
    assert len(heard[0]) == len(heard[1]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*heard, strict=True))


def test_a_silo_that_asks_for_other_nodes_is_named() -> None:
    parts = silos()
    parts[2] = claiming(parts[2], stranger(parts), owner=0)
    with pytest.raises(IsthmusError, match="silo-2 asked silo-0 for 1 nodes at the end of no edge that both list"):
        plan_halo(LocalWire(3), parts)


@pytest.mark.parametrize("name", ["sync-sgd+fwd-bwd-le", "optimes", "fedgnn-g"])
def test_edges_of_one_side_are_as_if_nobody_listed_them(name: str) -> None:
    whole = split_graph(small_graph(30, 140), owners(3), 3)
    gone = whole[0].edge_keys[whole[0].crosses][::3]
    one, neither = (
        [keep_edges(s, ~(s.crosses & torch.isin(s.edge_keys, gone))) if s.number in of else s for s in whole]
        for of in ((0,), (0, 1, 2))
    )
    assert losses(run_parts(name, one)) == losses(run_parts(name, neither)) != losses(run_parts(name, whole))


def test_a_merged_graph_has_the_edges_that_a_federation_has() -> None:
    parts = silos()
    parts[2] = claiming(parts[2], stranger(parts), owner=0)
    found = {edges: merge(agree_before_merge(parts, DataConfig(edges=edges))) for edges in ("mutual", "claimed")}
    assert set(found["mutual"].edge_keys.tolist()) == set(merge(silos()).edge_keys.tolist())
    assert found["claimed"].edge_index.shape[1] == found["mutual"].edge_index.shape[1] + 1


def test_keeping_all_edges_changes_nothing_and_dropping_some_leaves_a_whole_silo() -> None:
    silo = silos()[0]
    assert keep_edges(silo, torch.ones_like(silo.crosses)) is silo
    inner = keep_edges(silo, ~silo.crosses)
    assert inner.h == 0 and inner.n == silo.n and torch.equal(inner.edge_index, silo.edge_index[:, ~silo.crosses])
    some = torch.arange(len(silo.crosses)) % 2 == 0
    kept = keep_edges(silo, some)
    assert torch.equal(kept.keys[kept.edge_index], silo.keys[silo.edge_index[:, some]])
    assert set(kept.edge_index.flatten().tolist()) >= set(range(kept.n, kept.n + kept.h))


def test_the_choice_is_an_option_of_the_data() -> None:
    assert resolve({}).data.edges == "mutual"
    refuse(*SMALL, "--set", "data.edges=all", says=["data.edges", "claimed", "mutual"])
