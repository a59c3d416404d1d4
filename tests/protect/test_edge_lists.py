"""Draws of neighbour lists as they are counted in runs, and the guarantee that follows from the count."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.engine.layout import SPLITS
from isthmus.graph.graph import TRAIN
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.protect.accounting.edge_ldp import amplified, edge_ldp
from isthmus.protect.accounting.edge_lists import ListFigures, check_figures, list_figures, list_guarantees, pair_of
from isthmus.protect.accounting.guarantee import AS_CLAIMED, EDGE_LDP, ENTRY, LISTS, UNITS, Guarantee, headline
from isthmus.protect.drawn_lists import DrawnLists
from isthmus.protect.events import EdgeSampling, WholeLists, from_json, to_json
from isthmus.runs.text import lists_line, pair_text, privacy_line
from isthmus.sample.neighbours import Sample, Sampler
from isthmus.testing.runs import resumed
from isthmus.train import loop
from isthmus.train.result import Result
from isthmus.wire.wire import Wire
from tests.helpers.command import SMALL, metrics, succeed
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.killing import at, killed
from tests.helpers.small import open_method, run_method, small_graph

NODES, SILOS = 30, 3
OWNER = torch.arange(NODES) % SILOS
GRAPH = small_graph(NODES, 400)
REFILL: dict[str, Any] = {"batch": 4, "fanout": (3,), "draws": "refill", "epochs": 3}


def run(method: str = "fedavg", **given: Any) -> Result:
    return run_method(method, GRAPH, OWNER, SILOS, **{**REFILL, **given})


def told_by(result: Result) -> list[Guarantee]:
    found = privacy_of(result.training, take_account(result.training))
    return [each for each in found if each.of == LISTS]


def counted(result: Result, side: int = 0) -> Tensor:
    """How often each row's list was drawn from, in whatever way."""
    tables = [t for name, t in result.training.federation.drawn.state.items() if name.startswith(f"draws/{side}/")]
    return torch.stack(tables).sum(0)


# ---- the count


def test_one_hop_is_drawn_once_a_step_and_once_for_all_validations() -> None:
    """Every training node is a seed once an epoch; each validation draws as the one before did; the test is one."""
    result = run(model_options={"layers": 1})
    layout, found = result.training.stage.layout, counted(result)
    stack, first = layout.stack, 0
    expected = torch.zeros_like(found)
    for place, silo in enumerate(result.training.federation.silos):
        for split in SPLITS:
            pool = layout.pools[split]
            rows = pool.index[pool.ptr[place] : pool.ptr[place + 1]]
            rows = rows[stack.incoming.degree[rows] > 0]
            expected[rows - stack.ptr[place] + first] = REFILL["epochs"] if split == TRAIN else 1
        first += silo.n + silo.h
    assert torch.equal(found, expected) and int(found.max()) == 3


@pytest.mark.parametrize("method", ["fedavg", "sync-sgd+fwd-bwd-le", "fedavg+fwd-bwd-le", "ce-fedgnn"])
@pytest.mark.parametrize("directed", [False, True])
def test_draws_are_those_that_samplers_made(method: str, directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row that a sample expands, unless the very same sample was drawn before."""
    expected: list[Counter[int]] = [Counter(), Counter()]
    known, plain = set(), Sampler.sample

    def watched(self: Sampler, roots: Tensor, step: int, purpose: str = "train") -> Sample:
        sample = plain(self, roots, step, purpose)
        mark = purpose, step, tuple(self.stack.keys[sample.rows].tolist()), tuple(sample.depth.tolist())
        if purpose == "train" or mark not in known:
            known.add(mark)
            inner = sample.rows[sample.depth < len(self.fanout)]
            for side, adjacency in enumerate((self.stack.incoming, self.stack.outgoing)[: 1 + self.directed]):
                rows = inner[adjacency.degree[inner] > 0]
                expected[side].update((self.stack.silo_of(rows) * 1000 + self.stack.keys[rows]).tolist())
        return sample

    monkeypatch.setattr(Sampler, "sample", watched)
    result = run(method, model="pna", model_options={"directed": directed})
    keys = torch.cat([silo.keys + place * 1000 for place, silo in enumerate(result.training.federation.silos)])
    for side in range(1 + directed):
        found = counted(result, side)
        assert {key: n for key, n in zip(keys.tolist(), found.tolist(), strict=True) if n} == dict(expected[side])
        assert sum(expected[side].values()) > 100


def test_lists_that_are_not_drawn_again_are_drawn_once() -> None:
    assert int(counted(run(redraw=False)).max()) == 1


def test_nothing_is_counted_unless_asked_for() -> None:
    result = run(draws="distinct")
    assert not result.training.federation.drawn.state and not told_by(result)


def test_the_merged_graph_of_a_simulated_score_is_in_no_count() -> None:
    one = run(options={"score": {}})
    other = run(options={"score": "trained,global"})  # type: ignore[dict-item]
    assert all(
        torch.equal(table, other.training.federation.drawn.state[name])
        for name, table in one.training.federation.drawn.state.items()
    )


def test_a_resumed_run_has_counted_what_was_drawn() -> None:
    whole, again = resumed(lambda: open_method("fedavg", GRAPH, OWNER, SILOS, **REFILL), (1, 2))
    for each in again.values():
        state = each.training.federation.drawn.state
        assert state.keys() == whole.training.federation.drawn.state.keys()
        assert all(torch.equal(table, state[name]) for name, table in whole.training.federation.drawn.state.items())
        assert [g.as_dict() for g in told_by(each)] == [g.as_dict() for g in told_by(whole)]


# ---- the guarantee


def by_hand(result: Result) -> tuple[float, float]:
    """The largest epsilon and the largest delta of any list, one list after the other."""
    state = result.training.federation.drawn.state
    pairs = []
    for name in [name for name in state if name.startswith("draws/")]:
        fanout = int(name.split("/")[2])
        lengths = state[name.replace("draws", "length")].tolist()
        pairs += [edge_ldp(d, fanout, k) for d, k in zip(lengths, state[name].tolist(), strict=True) if k]
    return max(e for e, _ in pairs), max(d for _, d in pairs)


@pytest.mark.parametrize("given", [{}, {"floor": 4}, {"fanout": (2,), "floor": 5, "epochs": 1}])
def test_the_guarantee_is_that_of_the_worst_list(given: dict[str, Any]) -> None:
    result = run(**given)
    (told,) = told_by(result)
    assert (told.of, told.unit, told.notion) == (LISTS, ENTRY, EDGE_LDP)
    assert (told.epsilon, told.delta) == pytest.approx(by_hand(result), rel=1e-12)
    assert told.releases == int(counted(result).max())
    assert told.delta == max(each["delta"] for each in told.silos.values())
    assert Guarantee.from_dict(json.loads(json.dumps(told.as_dict()))).as_dict() == told.as_dict()
    for each in told.silos.values():
        assert pair_of(from_json(each["events"]))[1] == pytest.approx(each["delta"], rel=1e-12)
        assert each["shortest"] >= given.get("floor", 1)


def test_draws_of_two_fanouts_from_one_list_compose() -> None:
    """A list of 40, drawn from 30 times by 3 and twice by 5; and a shorter one by 5 alone, with replacement."""
    book = DrawnLists()
    book.open([2], 0)
    both, short, long = torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1])
    for fanout, times in ((3, 30), (5, 2)):
        for _ in range(times):
            book.record(book.ptr, long, torch.tensor([40]), fanout, 0, False, True)
    book.record(book.ptr, short, torch.tensor([4]), 5, 0, True, True)
    found = list_figures(book, slice(0, 2))
    assert (found.lists, found.draws, found.shortest) == (2, 32, 4)
    assert set(found.most_seen) == {EdgeSampling(40, 3, 30, False), EdgeSampling(40, 5, 2, False)}
    kept = (1 - 3 / 40) ** 30 * (1 - 5 / 40) ** 2
    assert pair_of(found.most_seen)[1] == pytest.approx(1 - kept, rel=0.02)  # but for the slack
    book.skip(book.ptr, both, 0)
    assert list_figures(book, slice(0, 1)).skipped == 1


def test_whole_lists_hide_nothing() -> None:
    """Full batches, a hop of all neighbours, sums over whole lists (FedGCN), and rows released from a whole graph."""
    runs = [run(batch=0), run(fanout=(3, -1)), run("fedgcn", model="gcn"), run("optimes")]
    for result in runs:
        (told,) = told_by(result)
        assert (told.epsilon, told.delta, told.void) == (math.inf, 1.0, True)
        assert "no guarantee" in lists_line([told]) and "read as a whole" in lists_line([told])
    assert not any(each["whole"] for each in told_by(run())[0].silos.values())


def test_the_claim_stands_beside_what_holds_and_never_for_it() -> None:
    result = run(fanout=(1,), floor=6)
    result.training.federation.drawn.claimed_rate = 0.5
    held, claimed = told_by(result)
    assert (held.notion, claimed.notion) == (EDGE_LDP, AS_CLAIMED)
    assert (claimed.epsilon, claimed.delta) == pytest.approx(amplified(held.epsilon, held.delta, 0.5))
    assert any("does not lower the worst case" in each for each in claimed.assumptions)
    everything = privacy_of(result.training, take_account(result.training))
    assert headline(everything).of == "everything" and lists_line(everything).index("claims") > 0
    assert pair_text(held) in lists_line(everything)


def test_a_delta_above_a_half_is_no_guarantee() -> None:
    base = Guarantee(LISTS, ENTRY, EDGE_LDP, 0.4, 0.5, silos={})
    assert not base.void and pair_text(base) == "epsilon = 0.4, delta = 0.5"
    broken = replace(base, delta=0.51)
    assert broken.void and broken.as_dict()["void"] is True and broken.as_dict()["epsilon"] == 0.4
    assert pair_text(broken) == "no guarantee (epsilon = 0.4, delta = 0.51)"
    assert privacy_line(replace(broken, unit="node")).startswith("no guarantee, with a delta of 0.51 (epsilon = 0.4)")
    assert ENTRY in UNITS


def test_events_survive_a_file_and_tell_what_happened() -> None:
    events = (EdgeSampling(4, 5, 12, True, 3, 0.5), WholeLists(2))
    assert from_json(json.loads(json.dumps(to_json(events)))) == events
    assert str(events[0]) == "12 draws of 5 from 4 neighbours, with replacement" and events[0].unit == "edge"
    assert pair_of(events) == (math.inf, 1.0) and pair_of(()) == (0.0, 0.0)


@pytest.mark.parametrize(
    "numbers",
    [
        torch.zeros(0, 5, dtype=torch.int64),
        torch.zeros(1, 5),
        torch.zeros(5, dtype=torch.int64),
        torch.tensor([[1, 0, 1, -4, 0]]),
        torch.tensor([[1, 0, 1, 4, 0], [2, 4, 5, 1, 1]]),
        torch.tensor([[1, 0, 1, 4, 0], [0, 0, 5, 1, 1]]),
    ],
)
def test_figures_that_cannot_be_are_refused(numbers: Tensor) -> None:
    with pytest.raises(PeerError, match="silo-7 sent figures of its drawn lists"):
        check_figures(numbers, "silo-7")


# ---- what can never lower it

books = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 60), st.sampled_from([2, 5])), min_size=1, max_size=12
)  # which list, of how many entries, drawn from by which fanout


def losses_of(done: list[tuple[int, int, int]]) -> tuple[float, float]:
    book = DrawnLists()
    book.open([5], 0)
    for row, length, fanout in done:
        book.record(book.ptr, torch.tensor([row]), torch.tensor([length]), fanout, 0, length <= fanout, True)
    figures = list_figures(book, slice(0, 5))
    check_figures(figures.to_numbers(), "silo-0")
    assert ListFigures.from_numbers(figures.to_numbers(), 0, 1.0) == figures
    (told,) = list_guarantees({"silo-0": figures})
    return told.epsilon, told.delta


@settings(max_examples=60, deadline=None)
@given(books, books)
def test_another_draw_of_any_list_never_lowers_the_guarantee(done: list[Any], more: list[Any]) -> None:
    assert all(a >= b * (1 - 1e-12) for a, b in zip(losses_of(done + more), losses_of(done), strict=True))


@settings(max_examples=60, deadline=None)
@given(books, st.integers(1, 30))
def test_shorter_lists_never_lower_the_guarantee(done: list[Any], less: int) -> None:
    """As long as they are drawn from in the same way."""
    same = [(r, max(length - less, f + 1 if length > f else 1), f) for r, length, f in done]
    assert all(a >= b * (1 - 1e-12) for a, b in zip(losses_of(same), losses_of(done), strict=True))


# ---- where it is shown


COMMAND = (*SMALL, "--set", "train.batch=8", "--set", "train.fanout=[2,2]", "--set", "train.draws=refill")


def test_a_run_shows_it_everywhere(tmp_path: Path) -> None:
    out = succeed(*COMMAND, "--set", "train.floor=2", "--seeds", 2, "--out", tmp_path / "run").out
    line = next(line for line in out.splitlines() if line.startswith("edge-LDP of drawn neighbour lists"))
    assert "no guarantee" in line and "below the floor not drawn from" in line
    found = metrics(tmp_path / "run")
    (told,) = [each for each in found["privacy"] if each["of"] == LISTS]
    assert told["void"] is True and told["delta"] > 0.5 and told["epsilon"] > 0
    seeds = [metrics(tmp_path / "run" / f"seed-{seed}")["privacy"][-1] for seed in (0, 1)]
    assert told in seeds and told["delta"] == max(each["delta"] for each in seeds)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "draws of neighbour lists" in page and "no guarantee (epsilon" in page and "Below the floor" in page
    assert "drawn by the run" in page


@pytest.mark.usefixtures("no_report")
def test_a_killed_run_counts_no_draw_twice(tmp_path: Path) -> None:
    succeed(*COMMAND, "--out", tmp_path / "whole")
    killed(at(loop, "step", 4), *COMMAND, "--out", tmp_path / "run")
    succeed("run", "--out", tmp_path / "run", "--resume")
    assert metrics(tmp_path / "run")["privacy"] == metrics(tmp_path / "whole")["privacy"]


def told_over(wire: Wire) -> list[dict[str, Any]]:
    result = run("sync-sgd+fwd-bwd-le", wire=wire, floor=2)
    found = (
        [each.as_dict() for each in privacy_of(result.training, accounts)]
        if (accounts := take_account(result.training)).lists
        else []
    )
    return [each for each in found if each["of"] == LISTS]


@pytest.mark.hosts
def test_the_servers_host_tells_the_guarantee_of_all_and_others_that_of_their_own_silos() -> None:
    within = run("sync-sgd+fwd-bwd-le", floor=2)
    lists = take_account(within.training).lists
    alone = [[told.as_dict() for told in list_guarantees({name: figures})] for name, figures in lists.items()]
    first, *others = on_hosts(SILOS, on_wire, SILOS, told_over)
    assert first == [each.as_dict() for each in told_by(within)]
    assert others == alone[1:] and others[0] != others[1]
