"""The accountant beside one written by hand on 30 nodes, and what can never lower an epsilon."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.graph.graph import Graph
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.protect.accounting.accountant import Spent, guarantees
from isthmus.protect.accounting.charges import Charge, charge, noise_of
from isthmus.protect.accounting.guarantee import (
    APART,
    CHARGED,
    DERIVED,
    DP,
    EDGE,
    EVERYTHING,
    NODE,
    RECORDS,
    ROW,
    Guarantee,
    headline,
)
from isthmus.protect.accounting.metric_dp import FINE_ORDERS
from isthmus.protect.events import Clipped, GaussianNoise
from isthmus.protect.gaussian import clipped
from isthmus.protect.releases import Releases
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from isthmus.wire.policy import Policy
from tests.helpers.small import run_method, small_graph

# ---- by hand


def by_hand(loss: float, delta: float) -> float:
    """The bound of CE-FedGNN's section on privacy for R rho^2 / (2 sigma^2) = loss, order by order."""
    if loss == 0:
        return 0.0
    return max(0.0, min(a * loss + math.log((a - 1) / a) - math.log(delta * a) / (a - 1) for a in FINE_ORDERS))


@dataclass(frozen=True)
class Listener(Policy):
    """Lets everything leave, and writes down what silos let out: kind, layer, and (silo, row) once for all readers."""

    heard: list[tuple[Kind, int, set[tuple[int, int]]]] = field(default_factory=list)

    def refusal(self, parcel: Parcel) -> str:
        if not parcel.by_server:
            rows = zip(parcel.origin.silo.tolist(), parcel.origin.row.tolist(), strict=True)
            self.heard.append((parcel.kind, parcel.layer, set(rows)))
        return ""


NODES, SILOS = 30, 3
OWNER = torch.arange(NODES) % SILOS
GRAPH = small_graph(NODES, 140)
SCALE = {"": (0.7, 0.9), "_adjoints": (0.2, 0.5), "_parameters": (3.0, 0.4), "_gradients": (1.5, 2.0)}  # clip, sigma
OF_KIND = {Kind.ADJOINTS: "_adjoints", Kind.PARAMETERS: "_parameters", Kind.GRADIENTS: "_gradients"}
DELTA = 1e-5
NOISE = {f"{what}{kind}": pair[i] for kind, pair in SCALE.items() for i, what in enumerate(("clip", "sigma"))}
PROTECTED = {"protect": {**NOISE, "delta": DELTA, "neighbours": 4}}
METHODS: dict[str, dict[str, Any]] = {
    "ce-fedgnn": {"options": {**PROTECTED, "sync": {"local_steps": 2}}},
    "fedgcn": {"model": "gcn"},
    "fedgnn-g": {},
    "sync-sgd+fwd-bwd-le": {},
    "optimes": {},
    "fedavg": {},
}


def run_and_listen(method: str, **given: Any) -> tuple[Result, Listener]:
    wire = LocalWire(SILOS)
    wire.policy = listener = Listener()
    made = {"options": PROTECTED, "epochs": 3, "model_options": {"norm": "none"}, **METHODS.get(method, {}), **given}
    return run_method(method, GRAPH, OWNER, SILOS, wire=wire, **made), listener


def found_of(result: Result) -> list[Guarantee]:
    return privacy_of(result.training, take_account(result.training))


def move(kind: Kind) -> float:
    """What one release of a kind loses: any two values lie 2 clip apart."""
    clip, sigma = SCALE[OF_KIND.get(kind, "")]
    return (2 * clip) ** 2 / (2 * sigma**2)


def sums_that_hold(graph: Graph, hop: int) -> Counter[int]:
    """How many sums of raw features that leave its silo each node is in.

    First a silo's part of the sum of a far node, for each far node it has an edge to. Then the whole sum of each node
    that has an edge to another silo: of its own silo it holds the node itself, and the sources of edges into it.
    """
    edges = {(u, v) for u, v in graph.edge_index.T.tolist()}
    crossing = {(u, v) for u, v in edges if OWNER[u] != OWNER[v]}
    if hop == 0:
        return Counter(u for u, _ in crossing)
    told = {u for u, _ in crossing}
    return Counter([*told, *(u for u, v in edges if v in told and OWNER[u] == OWNER[v])])


def losses_by_hand(listener: Listener) -> dict[int, float]:
    """Of each silo, what its node that lost most has lost: it may be inside all that the silo's model made."""
    lost: dict[int, float] = defaultdict(float)
    for kind, _, rows in listener.heard:
        if kind in SCALED and kind != Kind.AGGREGATES:
            for silo, _ in rows:
                lost[silo] += move(kind)
    if any(kind == Kind.AGGREGATES for kind, *_ in listener.heard):
        held = sums_that_hold(GRAPH, 0) + sums_that_hold(GRAPH, 1)
        for silo in range(SILOS):
            lost[silo] += max(held[node] for node in range(NODES) if OWNER[node] == silo) * move(Kind.AGGREGATES)
    return lost


SCALED = (*OF_KIND, Kind.EMBEDDINGS, Kind.PARTIALS, Kind.AGGREGATES)


@pytest.mark.parametrize("method", METHODS)
def test_everything_is_what_a_brute_force_accountant_finds(method: str) -> None:
    result, listener = run_and_listen(method)
    told, lost = headline(found_of(result)), losses_by_hand(listener)
    assert (told.unit, told.notion, told.delta, told.bare) == (EDGE, DP, DELTA, ())  # edges have attributes here
    assert told.epsilon == pytest.approx(by_hand(sum(sorted(lost.values())[-2:]), DELTA), rel=1e-9)
    assert 0 < told.epsilon < math.inf
    for silo in range(SILOS):
        assert told.silos[f"silo-{silo}"]["epsilon"] == pytest.approx(by_hand(lost[silo], DELTA), rel=1e-9)
    assert set(told.apart) <= {"schema", "ids", "statistics", "metrics", "order", "ports"} and "metrics" in told.apart


@pytest.mark.parametrize("method", METHODS)
def test_each_kind_is_what_a_brute_force_accountant_finds(method: str) -> None:
    result, listener = run_and_listen(method)
    for told in found_of(result):
        if told.of == EVERYTHING or told.notion != DP or told.of == Kind.AGGREGATES:
            continue
        heard = [rows for kind, _, rows in listener.heard if kind == told.of]
        each = Counter(row for rows in heard for row in rows)
        if told.unit == NODE:
            most = max(Counter(silo for rows in heard for silo, _ in rows).values())
        elif told.of == Kind.EMBEDDINGS:
            most = max(each.values())
        else:  # of partial sums: how many hold the row, one for each far node that it has an edge to, in every pass
            passes = set(each.values())
            edges = {(u, v) for u, v in GRAPH.edge_index.T.tolist() if OWNER[u] != OWNER[v]}
            assert len(passes) == 1  # full batches: every partial leaves at every pass
            most = passes.pop() * max(Counter(u for u, _ in edges).values())
        assert told.releases == most
        assert told.epsilon == pytest.approx(by_hand(most * move(Kind(told.of)), DELTA), rel=1e-9)


def test_metric_privacy_is_what_a_brute_force_accountant_finds() -> None:
    """One set of neighbours over all layers: the k-th smallest of sum_l R_l(v) |h_l(v) - h_l(w)|^2 over w."""
    result, _ = run_and_listen("ce-fedgnn")
    (told,) = [each for each in found_of(result) if each.notion != DP]
    state, first = result.training.wire.releases.state, 0
    sigma = SCALE[""][1]
    for silo in result.training.federation.silos:
        rows = range(first, first + silo.n)
        first += silo.n + silo.h
        counts = [state[f"counts/embeddings/{layer}"].tolist() for layer in (0, 1)]
        plain = [state[f"plain/embeddings/{layer}"].tolist() for layer in (0, 1)]
        released = [v for v in rows if counts[0][v] + counts[1][v]]
        losses = []
        for v in released:
            others = [w for w in released if w != v and all(counts[i][w] or not counts[i][v] for i in (0, 1))]
            apart = sorted(sum(counts[i][v] * math.dist(plain[i][v], plain[i][w]) ** 2 for i in (0, 1)) for w in others)
            losses.append(apart[min(4, len(apart)) - 1] / (2 * sigma**2))
        figures = told.silos[f"silo-{silo.number}"]
        assert (figures["nodes"], figures["measured"], figures["k"]) == (len(released), len(released), 4)
        assert figures["epsilon"]["100"] == pytest.approx(by_hand(max(losses), DELTA), rel=1e-9)
        middle = sorted(losses)[math.ceil(len(losses) / 2) - 1]
        assert figures["epsilon"]["50"] == pytest.approx(by_hand(middle, DELTA), rel=1e-9)


# ---- what can never lower an epsilon

ROWS = 6
Act = tuple[str, int, tuple[int, ...]]  # what left, at which layer, rows
acts = st.lists(
    st.tuples(
        st.sampled_from(["embeddings", "adjoints", "aggregates", "partials", "parameters", "gradients"]),
        st.integers(0, 2),
        st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=8).map(tuple),
    ),
    max_size=12,
)


def book_of(done: list[Act], rows: int = ROWS) -> Releases:
    """The book of what was done by two silos, which own the first half of the rows and the rest."""
    book = Releases()
    book.open(rows)
    for name, layer, at in done:
        kind, here = Kind(name), torch.tensor(at)
        if kind in (Kind.AGGREGATES, Kind.PARTIALS):
            for own in (here[here < ROWS // 2], here[here >= ROWS // 2]):  # a silo adds up its own rows alone
                book.record_sums(kind, layer, own[:1], own.unique())
        elif kind in (Kind.EMBEDDINGS, Kind.ADJOINTS):
            numbers = torch.ones(len(here), 2)
            book.record(kind, layer, here, numbers, numbers)
        else:
            book.record_payloads(kind, torch.tensor([0, 1]))
    return book


def epsilons(done: list[Act], clip: float = 1.0, sigma: float = 2.0, rows: int = ROWS) -> dict[tuple[str, str], float]:
    """Epsilon by what it is of and its unit."""
    book, noise = book_of(done, rows), GaussianNoise(clip, sigma, "row", 1e-4, 2)
    parts = (slice(0, ROWS // 2), slice(ROWS // 2, rows))
    spent: Spent = {
        kind: {f"silo-{i}": (charge(book, kind, part, i), noise) for i, part in enumerate(parts)} for kind in CHARGED
    }
    return {(each.of, each.unit): each.epsilon for each in guarantees(spent, [], [], edges=False)}


def nowhere_lower(more: dict[tuple[str, str], float], less: dict[tuple[str, str], float]) -> bool:
    return all(more[key] >= less[key] for key in less)


@settings(max_examples=30, deadline=None)
@given(acts, acts.filter(bool))
def test_another_release_never_lowers_an_epsilon(done: list[Act], more: list[Act]) -> None:
    assert nowhere_lower(epsilons(done + more), epsilons(done))
    everybody = [(name, layer, tuple(range(ROWS))) for name, layer, _ in more]
    assert epsilons(done + everybody)[EVERYTHING, NODE] > epsilons(done)[EVERYTHING, NODE]


@settings(max_examples=40, deadline=None)
@given(acts, st.floats(0.01, 1), st.floats(1, 100))
def test_a_weaker_mechanism_never_lowers_an_epsilon(done: list[Act], less: float, more: float) -> None:
    assert nowhere_lower(epsilons(done, sigma=2 * less), epsilons(done))
    assert nowhere_lower(epsilons(done, clip=more), epsilons(done))


@settings(max_examples=30, deadline=None)
@given(acts, st.integers(0, ROWS - 1))
def test_a_copied_row_never_lowers_an_epsilon(done: list[Act], row: int) -> None:
    """A node with the same rows as another, which is in every sum that the other is in."""
    copied = [(name, layer, (*at, ROWS) if row in at else at) for name, layer, at in done]
    assert nowhere_lower(epsilons(copied, rows=ROWS + 1), epsilons(done))


def test_several_treatments_count_as_the_weakest_of_each() -> None:
    strong, weak = (GaussianNoise(clip, sigma, "row", 1e-4, 2) for clip, sigma in ((1.0, 3.0), (2.0, 9.0)))
    both = noise_of([(strong,), (weak,)])
    assert both is not None and (both.clip, both.sigma) == (2.0, 3.0)
    assert noise_of([(strong,), ()]) is None and noise_of([(Clipped(1.0),)]) is None and noise_of([]) is None


# ---- whose data is inside


def test_a_label_in_sixty_derivatives_is_charged_for_all_of_them() -> None:
    """Each of 60 adjoint rows of a silo may hold any label of it, though each row is booked under a far end."""
    book = Releases()
    book.open(60)
    same = torch.ones(60, 4)
    book.record(Kind.ADJOINTS, 1, torch.arange(60), same, same)
    noise = GaussianNoise(1.0, 1.0, "silo", 1e-4, 50)
    spent: Spent = {Kind.ADJOINTS: {"silo-0": (charge(book, Kind.ADJOINTS, slice(0, 60), 0), noise)}}
    for told in guarantees(spent, [], [], edges=False):
        assert told.releases == 60
        assert told.epsilon == pytest.approx(by_hand(60 * 2.0, 1e-4), rel=1e-12) and told.epsilon > 180


def test_a_row_that_a_sum_holds_three_times_is_charged_for_one_sum() -> None:
    """Sums are clipped as a whole: however often a row is in one, it moves the sum by at most 2 clip."""
    thrice = torch.arange(GRAPH.edge_index.shape[1]).repeat(3)
    edges = {name: getattr(GRAPH, name)[thrice] for name in ("edge_attr", "edge_time")}
    graph = replace(GRAPH, edge_index=GRAPH.edge_index[:, thrice], **edges)
    made = {"options": PROTECTED, "epochs": 1, "model_options": {"norm": "none"}}
    result = run_method("fedgnn-g", graph, OWNER, SILOS, **made)
    (told,) = [each for each in found_of(result) if (each.of, each.unit) == (Kind.PARTIALS, ROW)]
    far = Counter(u for u, v in {(u, v) for u, v in GRAPH.edge_index.T.tolist()} if OWNER[u] != OWNER[v])
    passes = 1 + 1 + 2  # a step, its validation, and validation and test of what was selected
    assert told.releases == max(far.values()) * passes * 2  # layers
    extremes = torch.tensor([[1e9, 0.0], [-1e9, 0.0]], dtype=torch.float64)
    one, other = clipped(3 * extremes, 0.7)
    assert float((one - other).norm()) == pytest.approx(2 * 0.7)


def test_an_edge_that_two_silos_hold_is_charged_for_both() -> None:
    noise = GaussianNoise(1.0, 1.0, "silo", 1e-4, 50)
    book = book_of([("gradients", 0, (0,))] * 5)
    spent: Spent = {
        Kind.GRADIENTS: {f"silo-{i}": (charge(book, Kind.GRADIENTS, slice(0, 0), i), noise) for i in (0, 1)}
    }
    node, edge = (headline(guarantees(spent, [], [], edges)) for edges in (False, True))
    assert (node.unit, edge.unit) == (NODE, EDGE)
    assert node.epsilon == pytest.approx(by_hand(5 * 2.0, 1e-4)) and edge.epsilon == pytest.approx(by_hand(20.0, 1e-4))


# ---- what is covered


@pytest.mark.parametrize(("method", "bare"), [("sync-sgd", "gradients"), ("fedavg", "parameters")])
def test_data_of_nodes_without_noise_makes_epsilon_infinite(method: str, bare: str) -> None:
    result, _ = run_and_listen(method, options={})
    told = headline(found_of(result))
    assert (told.epsilon, told.bare) == (math.inf, (bare,))


def test_noise_without_a_bound_makes_epsilon_infinite() -> None:
    result, _ = run_and_listen("fedavg", options={"protect": {"sigma_parameters": 5.0}})
    told = headline(found_of(result))
    assert (told.epsilon, told.bare) == (math.inf, ("parameters",))


def test_moments_of_rows_at_steps_are_data_of_nodes() -> None:
    result, _ = run_and_listen("sync-sgd", model_options={"norm": "batch"})
    told = headline(found_of(result))
    assert (told.epsilon, told.bare) == (math.inf, ("statistics",))


def test_local_training_loses_nothing_but_what_is_listed_apart() -> None:
    result, _ = run_and_listen("local", options={})
    told = headline(found_of(result))
    assert (told.epsilon, told.bare) == (0.0, ()) and {"metrics", "statistics"} <= set(told.apart)


def test_one_party_that_holds_everything_has_no_bound() -> None:
    result = run_method("centralised", GRAPH, OWNER, SILOS)
    assert headline(found_of(result)).epsilon == math.inf


def test_a_guarantee_survives_a_file() -> None:
    result, _ = run_and_listen("ce-fedgnn")
    for each in found_of(result):
        again = Guarantee.from_dict(each.as_dict())
        assert again.as_dict() == each.as_dict() and again.epsilon == each.epsilon


def test_hosts_tell_counts_and_no_distances() -> None:
    result, _ = run_and_listen("ce-fedgnn")
    told: list[Tensor] = []

    class Metrics(Policy):
        def refusal(self, parcel: Parcel) -> str:
            assert parcel.kind == Kind.METRICS
            told.append(parcel.rows)
            return ""

    result.training.wire.policy = Metrics()
    take_account(result.training)
    assert told and all(not rows.is_floating_point() for rows in told)


def test_every_kind_of_message_is_charged_listed_apart_or_data_without_noise() -> None:
    assert sorted((*CHARGED, *APART, *DERIVED, *RECORDS)) == sorted(Kind)
    never = {Kind.FEATURES, Kind.LABELS, Kind.EDGES, Kind.SCORES}
    assert set(RECORDS) == never | {Kind.PROTOTYPES, Kind.GENERATED, Kind.ROW_GRADIENTS, Kind.MASKED}


def test_noise_of_one_silo_does_not_cover_another() -> None:
    noise = GaussianNoise(1.0, 1.0, "silo", 1e-4, 50)
    paid = {"silo-0": (Charge(node=3), noise), "silo-1": (Charge(node=3), None)}
    told = headline(guarantees({Kind.PARAMETERS: paid}, [], [], edges=False))
    assert (told.epsilon, told.bare) == (math.inf, ("parameters",))
    assert told.silos["silo-0"]["epsilon"] == pytest.approx(by_hand(3 * 2.0, 1e-4))
    assert told.silos["silo-1"]["epsilon"] == math.inf
