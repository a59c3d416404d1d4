"""Hostile letters over real sockets: all are refused, every host names the sender, and the honest ones go on."""

import os
import time
from collections import Counter
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import Kind
from isthmus.wire.arrival_checks import check_whole, mark_ends
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.envelope import enveloped, opened
from isthmus.wire.pulse import Pulse
from tests.helpers.hostile import HOSTILE, LETTERS, Hostile, letters
from tests.helpers.hosts import on_hosts


def meet(host: int, ports: list[int]) -> list[str]:
    """What a host says of each letter; every letter meets a new run, in processes that lived through all before."""
    said = []
    for letter, port in zip([*LETTERS, None], ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        with pytest.MonkeyPatch.context() as patch:
            if letter and host == HOSTILE:
                letter.misdeed(patch)
            said.append(outcome(letter))
    return said


def outcome(letter: Hostile | None) -> str:
    """How one run of this host ends: with what it says, or with nothing to say."""
    wire = None
    try:
        wire = DistributedWire(3, timeout=30)
        (letter.exchange if letter else letters)(wire)
        wire.close_down()
        return ""
    except IsthmusError as error:
        if wire is not None:
            wire.end(str(error))
        return str(error)
    finally:
        end = time.monotonic() + 10
        while dist.is_initialized() and time.monotonic() < end:
            time.sleep(0.01)


@pytest.mark.hosts
def test_hostile_letters_are_refused_by_name_and_nobody_else_is_harmed() -> None:
    stores = [
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        for _ in (*LETTERS, None)
    ]
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    each = on_hosts(3, meet, [store.port for store in stores])
    honest = [told for host, told in enumerate(each) if host != HOSTILE]
    wrong = [
        (letter.kind, letter.what, words)
        for letter, *told in zip(LETTERS, *honest, strict=False)
        for words in told
        if letter.said not in words or not any(name in words for name in ("silo-2", "Silo 2", "Host 2"))
    ]
    assert not wrong, wrong
    assert [told[-1] for told in each] == ["", "", ""]  # the run after all of them, which is an honest one
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert not [child.cmdline() for child in left if "resource_tracker" not in " ".join(child.cmdline())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (9,), (0, 4)], ids=str)
def test_what_ends_too_early_is_found_out_and_what_is_whole_is_not(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """A transport fills a part of the room that was made, and says nothing."""
    splits, who = [shape[0], shape[0]], ["silo-0", "silo-1"]
    rows = torch.zeros(2 * shape[0], *shape[1:], dtype=dtype)
    marks = mark_ends(rows, splits)
    assert dtype.is_floating_point is False or not rows.numel() or bool(rows[-1].flatten()[-1].isnan())
    rows[: shape[0]] = 1  # what the first host sends comes whole
    if rows[shape[0] :].nbytes >= 8 or (dtype.is_floating_point and rows.numel()):
        with pytest.raises(PeerError, match="silo-1 sent fewer bytes of ids"):
            check_whole(Kind.IDS, rows, splits, marks, who)
    for value in (0, 1, torch.nan if dtype.is_floating_point else 255):
        rows.fill_(value)
        check_whole(Kind.IDS, rows, splits, marks, who)


def test_an_envelope_opens_at_its_own_exchange_alone() -> None:
    letters = torch.arange(40, dtype=torch.uint8)
    sent = enveloped(letters, Kind.IDS, 7)
    assert torch.equal(opened(sent, Kind.IDS, 7), letters) and not len(enveloped(letters[:0], Kind.IDS, 7))
    for kind, number in ((Kind.IDS, 8), (Kind.IDS, 6), (Kind.SCHEMA, 7)):
        with pytest.raises(ValueError, match="letters of ids of exchange 7 .a replay"):
            opened(sent, kind, number)


def test_what_others_write_to_the_store_is_no_more_than_a_line() -> None:
    """No sign of life is none, and a reason moves no cursor."""
    store = dist.HashStore()
    pulse = Pulse(store, 0, 4)  # type: ignore[arg-type]
    try:
        for host, said in enumerate(("3 9", "-1 x", "9" * 60 + " 1"), 1):
            store.set(f"pulse/{host}", said)
        pulse.calls = 10
        assert pulse._read() == {1: (3, 9)} and pulse.behind() == [1]
        store.set("problem", "silo-1\x1b[2J has\n\nended\x00 " + "x" * 9000)
        assert pulse.problem().startswith("silo-1[2J has ended x") and len(pulse.problem()) == 1000
    finally:
        pulse.stop()


def test_there_are_enough_letters_of_every_kind() -> None:
    kinds = Counter(letter.kind for letter in LETTERS)
    assert len(LETTERS) >= 40 and len(kinds) >= 10 and min(kinds.values()) >= 3
    assert len({(letter.kind, letter.what) for letter in LETTERS}) == len(LETTERS)
