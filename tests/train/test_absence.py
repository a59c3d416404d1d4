"""Silos that miss rounds: what the others do without them, and what a round that is rolled back leaves behind."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, PartyLost
from isthmus.core.kinds import Kind
from isthmus.engine.absence import AbsenceConfig
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.silo import Silo
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.testing.runs import losses, open_of, resumed, small_graph
from isthmus.train.loop import train
from isthmus.train.metrics import Scores, weighted_mean
from isthmus.train.result import Result
from isthmus.train.select import Best
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire
from tests.helpers.small import assert_same, numbers, parameters

SILOS, NODES = 4, 32
OWNER = torch.arange(NODES) % SILOS
METHODS = ("sync-sgd+fwd-bwd-le", "fedavg", "ce-fedgnn", "swift-fedgnn", "optimes", "local", "sync-sgd", "fedgnn-g")
SHORT = {"ce-fedgnn": {"sync": {"local_steps": 2}}}


def silos(graph: Graph | None = None) -> list[Silo]:
    return split_graph(graph or small_graph(NODES, 128), OWNER, SILOS)


def opened(
    name: str,
    away: Sequence[str] = (),
    parts: list[Silo] | None = None,
    asked: dict[str, dict[str, Any]] | None = None,
    wire: Wire | None = None,
    absent: str = "stale",
    model: str = "sage",
    **training: Any,
) -> Training:
    method = compose(catalogue.get(name), {**SHORT.get(name, {}), **(asked or {})})
    options = {"epochs": 6, **training}
    absence = AbsenceConfig(absent, 2, tuple(away))
    return open_of(method, parts or silos(), method.model or model, wire=wire, absence=absence, **options)


def run(*given: Any, **options: Any) -> Result:
    return train(opened(*given, **options))


@pytest.mark.parametrize("name", METHODS)
def test_where_nobody_leaves_nothing_changes_bit_for_bit(name: str) -> None:
    today, stale = run(name, absent="stop"), run(name)
    assert losses(today) == losses(stale)
    assert today.bytes == stale.bytes and today.history == stale.history
    ours, theirs = parameters(today), parameters(stale)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def others(gone: int) -> list[Silo]:
    """The federation that one silo never belonged to: its nodes are in no silo, and no edge leads to it."""
    graph = small_graph(NODES, 128)
    parts = split_graph(graph, OWNER, SILOS)
    stay = [silo for silo in range(SILOS) if silo != gone]
    kept = (OWNER != gone).nonzero().flatten()
    place = torch.full((NODES,), -1)
    place[kept] = torch.arange(len(kept))
    inside = (place[graph.edge_index] >= 0).all(0)
    assert len(parts) == SILOS
    edges = {
        name: getattr(graph, name)[inside]
        for name in ("edge_attr", "edge_time", "edge_y", "edge_split")
        if getattr(graph, name) is not None
    }
    whole = Graph(
        ids=graph.ids[kept.numpy()],
        x=graph.x[kept],
        edge_index=place[graph.edge_index[:, inside]],
        schema=graph.schema,
        y=graph.y[kept],
        split=graph.split[kept],
        **edges,
    ).check()
    renumbered = torch.tensor([stay.index(int(owner)) for owner in OWNER[kept]])
    return split_graph(whole, renumbered, SILOS - 1)


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("name", ["sync-sgd+fwd-bwd-le", "fedavg", "ce-fedgnn", "fedgnn-g", "sync-sgd", "local"])
def test_absent_from_the_start_is_a_run_without_that_silo(name: str, batch: int) -> None:
    """With edges to it left out, the others train as if it had never been there."""
    gone = 3
    asked = {"exchange": {"absent": "drop"}} if name in ("sync-sgd+fwd-bwd-le", "ce-fedgnn") else {}
    training = {"batch": batch, "fanout": (2,), "epochs": 3, "evaluate_every": 10}
    away = run(name, [f"{gone}:1-1000"], asked=asked, **training)
    never = run(name, parts=others(gone), **training)
    shorter = away.training.stage.steps_per_epoch > never.training.stage.steps_per_epoch
    # With more steps an epoch, later epochs have other step numbers, from which draws follow.
    steps = never.training.stage.steps_per_epoch if shorter else len(losses(never))
    assert steps >= 2
    torch.testing.assert_close(numbers(losses(away)[:steps]), numbers(losses(never)[:steps]), rtol=1e-10, atol=0)
    for key, x in never.last.items() if not shorter else ():
        stay = away.last[key][: SILOS - 1] if len(away.last[key]) == SILOS else away.last[key]
        torch.testing.assert_close(stay, x, rtol=1e-8, atol=1e-10)
    everybody = run(name, **training)
    assert losses(everybody)[1:] != losses(away)[1:]


@pytest.mark.parametrize("how", ["last", "average", "drop"])
@pytest.mark.parametrize("name", ["sync-sgd+fwd-bwd-le", "ce-fedgnn", "optimes"])
def test_rows_of_an_absent_silo_are_read_as_asked(name: str, how: str) -> None:
    """The first rounds are everybody's, then each way of standing in for rows goes its own."""
    asked = {"exchange": {"absent": how}}
    found = losses(run(name, ["3:4-1000"], asked=asked, epochs=8))
    if how == "last":
        return
    usual = losses(run(name, ["3:4-1000"], epochs=8))
    assert found[:3] == usual[:3] and found != usual


def test_last_rows_are_those_of_the_last_step_before() -> None:
    training = opened("sync-sgd+fwd-bwd-le", ["3:3-1000"], epochs=2)
    train(training)
    exchange = training.stage.exchange
    before = {name: x.clone() for name, x in exchange.state.items()}
    longer = opened("sync-sgd+fwd-bwd-le", ["3:3-1000"], epochs=6)
    train(longer)
    boundary = longer.stage.site.boundary
    of_absent = boundary.halo_pair % SILOS == 3
    now = longer.stage.exchange.state
    assert bool(of_absent.any())
    for layer in range(2):
        kept = now[f"absent-{layer}"]
        assert torch.equal(kept[of_absent], before[f"absent-{layer}"][of_absent])
        assert not torch.equal(kept[~of_absent], before[f"absent-{layer}"][~of_absent])


@pytest.mark.parametrize("name", METHODS)
def test_nothing_of_an_absent_silo_leaves_or_arrives(name: str) -> None:
    found = run(name, ["2:2-5"], epochs=12)
    silo, steps = found.training.wire.party(2), 2 if name == "ce-fedgnn" else 1  # of a round
    while_away = [
        line
        for line in found.training.wire.ledger.table().to_pylist()
        if steps < line["step"] <= 5 * steps and line["purpose"] not in ("losses", "end")
    ]
    assert while_away or name == "local"
    assert all(silo not in (line["sender"], line["receiver"]) for line in while_away)
    assert found.training.progress.missed == {2: 4}


@pytest.mark.parametrize("name", METHODS)
def test_after_its_return_a_silo_takes_part_again(name: str) -> None:
    """Silos that share parameters end with equal ones, also the one that was away; and the curve is another one."""
    back, always = run(name, ["1:2-3"]), run(name)
    assert losses(back) != losses(always)
    if name in ("local",):
        return
    last = back.last
    for x in last.values():
        assert all(torch.equal(x[0], each) for each in x) or name in ("fedavg", "ce-fedgnn", "optimes")
    shared = [key for key in last if back.training.stage.phase.sync.shares(key)]
    assert shared and all(torch.allclose(last[key], last[key][:1].expand_as(last[key])) for key in shared)


def test_what_a_silo_has_for_itself_stands_still_while_it_is_away() -> None:
    short = opened("local", ["1:3-1000"], epochs=2, evaluate_every=10, model="sage")
    long = opened("local", ["1:3-1000"], epochs=6, evaluate_every=10, model="sage")
    few, many = train(short).last, train(long).last
    for key in few:
        assert torch.equal(few[key][1], many[key][1])
    assert any(not torch.equal(few[key][0], many[key][0]) for key in few)


class Losing(LocalWire):
    """A wire that loses silos at a chosen call, and finds the given members left."""

    def __init__(self, at: int, left: Sequence[int]) -> None:
        super().__init__(SILOS)
        self.at, self.left, self.calls = at, tuple(left), 0

    def leave(self, *given: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise PartyLost("silo-3 stopped giving signs of life.")
        return super().leave(*given, **options)

    def survivors(self, rounds: Sequence[int]) -> tuple[Membership, int]:
        return self.members.only(self.left), rounds[-1]


def calls_of(name: str) -> int:
    wire = Losing(-1, ())
    run(name, wire=wire)
    return wire.calls


@pytest.mark.parametrize("name", ["sync-sgd+fwd-bwd-le", "fedavg", "ce-fedgnn", "optimes", "fedgnn-g"])
def test_a_silo_that_misses_no_round_changes_nothing(name: str) -> None:
    """Lost in a round and back before it is taken again: the round is rolled back, and the run is the one of always."""
    plain, calls = run(name), calls_of(name)
    opening = Losing(-1, ())
    opened(name, wire=opening)
    for share in (0.3, 0.6):
        at = int(opening.calls + share * (calls - opening.calls))
        wire = Losing(at, range(SILOS))
        found = run(name, wire=wire)
        assert wire.calls > calls, "nothing was taken again"
        assert_same(plain, found, sets=range(1))
        assert losses(plain) == losses(found)
        assert any("rolled back" in note for note in found.training.federation.notes)


def test_a_round_that_is_rolled_back_stays_booked() -> None:
    """Releases, messages and noise of the first attempt stay counted, and the second draws noise of its own."""
    asked = {"protect": {"name": "gaussian", "sigma_parameters": 0.1, "clip_parameters": 1.0}}
    plain, calls = run("fedavg", asked=asked), calls_of("fedavg")
    wire = Losing(calls // 2, range(SILOS))
    found = run("fedavg", asked=asked, wire=wire)
    sent = [each.training.wire.ledger.treatments(Kind.PARAMETERS) for each in (plain, found)]
    draws = [each.training.wire.noise.draws for each in (plain, found)]
    count = [sum(each[0].values()) for each in sent]
    assert count[1] >= count[0] and draws[1] >= draws[0]


def test_noise_is_never_drawn_twice_for_two_releases() -> None:
    asked = {"protect": {"name": "gaussian", "sigma_parameters": 0.1, "clip_parameters": 1.0}}

    class AfterRelease(Losing):
        """Loses somebody right after the parameters of the first round have left."""

        def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
            done = super()._sum_hosts(kind, x, per_silo)
            if kind == Kind.PARAMETERS and not self.at:
                self.at = 1
                raise PartyLost("silo-3 is gone.")
            return done

    plain, found = run("fedavg", asked=asked), run("fedavg", asked=asked, wire=AfterRelease(0, range(SILOS)))
    assert found.training.wire.noise.draws > plain.training.wire.noise.draws
    sent = [sum(each.training.wire.ledger.treatments(Kind.PARAMETERS)[0].values()) for each in (plain, found)]
    assert sent[1] == sent[0] + 1
    assert losses(plain)[:1] == losses(found)[:1] and losses(plain)[1:] != losses(found)[1:]


@pytest.mark.parametrize("name", ["fedavg", "sync-sgd+fwd-bwd-le"])
def test_a_lost_silo_is_one_that_is_absent_from_that_round_on(name: str) -> None:
    plain = run(name, ["3:3-1000"], epochs=4)
    wire = Losing(-1, ())
    run(name, epochs=2, evaluate_every=10, wire=wire)

    class InThirdRound(Losing):
        def _swap(self, *given: Any) -> Tensor:
            return self._lose() or super()._swap(*given)

        def _sum_hosts(self, *given: Any, **options: Any) -> Tensor:
            return self._lose() or super()._sum_hosts(*given, **options)

        def _lose(self) -> None:
            if self.ledger.step == 3 and self.members.complete:
                raise PartyLost("silo-3 is gone.")

    lost = run(name, epochs=4, wire=InThirdRound(-1, (0, 1, 2)))
    torch.testing.assert_close(numbers(losses(plain)), numbers(losses(lost)), rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"absent": "sometimes"}, r"federation.absent 'sometimes'.*stale, stop"),
        ({"away": ("2:1-3",)}, r"federation.absent=stop.*use federation.absent=stale"),
        ({"absent": "stale", "away": ("2:5-3",)}, r"'2:5-3'.*SILO:FIRST-LAST"),
        ({"absent": "stale", "away": ("2:1.5",)}, r"SILO:SHARE"),
        ({"absent": "stale", "least": 0}, "at least 1 party"),
    ],
)
def test_settings_that_mean_nothing_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        AbsenceConfig(**asked).check()


@pytest.mark.parametrize(
    ("name", "part"),
    [("hifgl", "exchange=hifgl"), ("llcg", "sync=llcg"), ("fed-pub", "sync=fed-pub"), ("fedpergnn", "sync=fedpergnn"),
     ("feddep-no-prototypes", "objective=asked-reconstruction")],
)  # fmt: skip
def test_parts_that_need_everybody_say_so(name: str, part: str) -> None:
    with pytest.raises(IsthmusError, match=f"{part} cannot go on without a member"):
        catalogue.get(name).check_absence(AbsenceConfig("stale"))


def test_an_option_about_absent_silos_is_refused_where_a_run_ends_without_one() -> None:
    method = compose(catalogue.get("ce-fedgnn"), {"exchange": {"absent": "drop"}})
    with pytest.raises(IsthmusError, match=r"exchange.absent=drop.*federation.absent=stop"):
        method.check_absence(AbsenceConfig())


def test_fewer_than_least_and_unknown_silos_are_refused() -> None:
    with pytest.raises(IsthmusError, match="leaves 1 of 4 silos in round 2"):
        run("fedavg", ["1:2-2", "2:2-2", "3:2-2"])
    with pytest.raises(IsthmusError, match="federation.least is 5, but silos: 4"):
        AbsenceConfig("stale", 5).check_silos(4, 1)
    with pytest.raises(IsthmusError, match="names silo 9"):
        opened("fedavg", ["9:1-2"])


def test_a_share_of_rounds_follows_from_the_seed_alone() -> None:
    absence = AbsenceConfig("stale", 2, ("2:0.5",))
    drawn = [absence.present(number, 7, 5) for number in range(400)]
    assert drawn == [absence.present(number, 7, 5) for number in range(400)]
    missed = sum(2 not in present for present in drawn)
    assert 160 < missed < 240
    assert drawn != [absence.present(number, 8, 5) for number in range(400)]


@pytest.mark.parametrize("name", ["ce-fedgnn", "sync-sgd+fwd-bwd-le"])
def test_a_run_resumed_while_a_silo_is_away_is_the_whole_run(name: str) -> None:
    whole, again = resumed(lambda: opened(name, ["2:2-4"]), after=[3])
    assert losses(whole)[-3:] == losses(again[3])[-3:]
    assert again[3].training.progress.missed == whole.training.progress.missed == {2: 2 if name == "ce-fedgnn" else 3}
    assert again[3].valid is not None and whole.valid is not None
    assert torch.equal(again[3].valid.overall, whole.valid.overall)


def test_selection_counts_an_absent_silo_with_what_it_told_last() -> None:
    def scores(silos: list[float], weights: list[float]) -> Scores:
        found, weight = torch.tensor(silos, dtype=torch.float64)[:, None], torch.tensor(weights).double()
        return Scores(("accuracy",), weighted_mean(found, weight), found, weight, ("a", "b"), weight.long())

    best = Best((0, 1), False, ("classifier",))
    nan = float("nan")
    assert float(best.with_absent(scores([0.5, nan], [3.0, 0.0]), (0,)).overall[0]) == 0.5  # it never told any
    best.with_absent(scores([0.5, 0.1], [3.0, 1.0]), (0, 1))
    alone = best.with_absent(scores([0.9, nan], [3.0, 0.0]), (0,))
    assert float(alone.overall[0]) == pytest.approx((3 * 0.9 + 0.1) / 4)
    assert float(best.with_absent(scores([0.9, 0.7], [3.0, 1.0]), (0, 1)).overall[0]) == pytest.approx(0.85)
