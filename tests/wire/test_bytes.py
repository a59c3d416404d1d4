"""What crosses in an epoch: counted by hand from the graph, and beside the formulas of the paper."""

from dataclasses import replace

import pytest
import torch
from benchmarks.volume import METHODS, Counted, Sizes, Volume, formula, one_epoch
from torch import Tensor

from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TRAIN, Graph
from isthmus.graph.merged import merge
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.nn.model import MODELS
from isthmus.wire.local import LocalWire
from tests.helpers.small import small_graph

OWNER = torch.arange(12) % 3
HIDDEN, LAYERS, ITEM = 8, 2, 8
EXACT = "sync-sgd+fwd-bwd-le"
SAMPLED = {"batch": 4, "fanout": (2,)}


def twelve_nodes() -> Graph:
    """All of them labelled for training, so that only training crosses."""
    return small_graph().with_split(torch.full((12,), TRAIN))


def open_run(name: str, options: dict | None = None, owner: Tensor = OWNER, **training: object) -> Counted:
    """Both directions of every edge are read, so that every halo row is needed."""
    silos = int(owner.max()) + 1
    method = compose(catalogue.get(name), options or {})
    parts = split_graph(twelve_nodes(), owner, silos)
    parts = [merge(parts)] if method.merged else parts
    federation = open_federation(LocalWire(len(parts), method.chain), parts)
    model = replace(MODELS["sage"], layers=LAYERS, hidden=HIDDEN, directed=True)
    return Counted(federation, method, model, TrainConfig(epochs=1, **training), dtype=torch.float64)  # type: ignore[arg-type]


def pairs_by_hand(graph: Graph, owner: Tensor) -> set[tuple[int, int]]:
    """(node, silo that does not own it but has an edge to or from it)."""
    ends = [(int(a), int(b)) for a, b in graph.edge_index.T] + [(int(b), int(a)) for a, b in graph.edge_index.T]
    return {(far, int(owner[near])) for far, near in ends if owner[far] != owner[near]}


def flows(run: Counted, kind: str, epoch: int = 1) -> dict[tuple[int, int], int]:
    """Rows of a kind between each pair of silos."""
    found: dict[tuple[int, int], int] = {}
    for line in run.wire.ledger.table().to_pylist():
        if line["kind"] == kind and line["epoch"] == epoch:
            pair = tuple(int(line[end].removeprefix("silo-")) for end in ("sender", "receiver"))
            found[pair] = found.get(pair, 0) + line["rows"]  # type: ignore[index, arg-type]
    return found


def test_a_row_that_several_edges_need_crosses_once_for_each_silo_and_layer() -> None:
    run = open_run(EXACT)
    crossed = one_epoch(run)
    needed = pairs_by_hand(twelve_nodes(), OWNER)
    assert crossed.bytes["embeddings"] == len(needed) * HIDDEN * ITEM * LAYERS
    assert crossed.sizes.cut > len(needed)  # several edges do need one row
    assert crossed.rows_per_edge == len(needed) / crossed.sizes.cut


@pytest.mark.parametrize("training", [{}, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("batches", ["joint", "local"])
def test_every_row_that_crossed_has_one_adjoint_back(batches: str, training: dict) -> None:
    forward, both = (open_run(f"fedavg+{name}", batches=batches, **training) for name in ("fwd-le", "fwd-bwd-le"))
    one_way, two_way = one_epoch(forward).bytes, one_epoch(both).bytes
    assert two_way["adjoints"] == two_way["embeddings"] == one_way["embeddings"] > 0
    assert "adjoints" not in one_way
    there, back = flows(both, "embeddings"), flows(both, "adjoints")
    assert back == {(receiver, sender): rows for (sender, receiver), rows in there.items()}


def test_in_a_sample_only_rows_of_its_edges_cross() -> None:
    """The sample of a centralised run, cut by hand: which silo needs which row at which layer."""
    owner = torch.arange(12) // 2  # six silos, so that some share no edge in a batch
    run, whole = open_run(EXACT, owner=owner, **SAMPLED), open_run("centralised", **SAMPLED)
    one_epoch(run, steps=1)
    seeds = next(iter(whole.epoch_seeds()))
    by_id = {int(key): int(silo) for key, silo in zip(twelve_nodes().ids, owner, strict=True)}
    needed: dict[tuple[int, int], int] = {}
    for block in whole.make_batch(seeds, 0).blocks:
        assert block.reverse is not None
        ends = torch.cat([torch.stack([side.src, side.dst]) for side in (block, block.reverse)], 1)
        keys = zip(block.sources.keys[ends[0]].tolist(), block.targets.keys[ends[1]].tolist(), strict=True)
        for _, pair in {(far, (by_id[far], by_id[near])) for far, near in keys if by_id[far] != by_id[near]}:
            needed[pair] = needed.get(pair, 0) + 1
    assert flows(run, "embeddings") == needed
    shared = pairs_by_hand(twelve_nodes(), owner)
    assert len(needed) < len({(int(owner[node]), silo) for node, silo in shared})


@pytest.mark.parametrize("training", [{}, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("batches", ["joint", "local"])
@pytest.mark.parametrize("name", METHODS)
def test_the_ledger_stays_below_the_formulas(name: str, batches: str, training: dict) -> None:
    crossed = one_epoch(open_run(name, batches=batches, **training))
    expected = formula(name, crossed.sizes)
    for term in ("embeddings", "adjoints"):
        assert crossed.bytes.get(term, 0) <= ITEM * getattr(expected, term)
        assert (crossed.bytes.get(term, 0) > 0) == (getattr(expected, term) > 0)
    parameters = crossed.bytes.get("parameters", 0) + crossed.bytes.get("gradients", 0)
    assert parameters == 2 * ITEM * expected.parameters  # up and down


def test_the_formulas_are_those_of_the_paper() -> None:
    """Its example: 15 clients, P = 4.4e5, S = 17, L = 6, d = 64, |R_c| = 480; ratios as in its Section 8.3."""
    sizes = Sizes(clients=1, parameters=440_000, steps=17, layers=6, width=64, cut=480, sampled=480)
    volume = {name: sum(vars(formula(name, sizes)).values()) for name in METHODS}
    assert volume["fedavg+fwd-le"] / volume["sync-sgd"] == pytest.approx(0.48, abs=0.005)
    assert volume["fedavg+fwd-bwd-le"] / volume["sync-sgd"] == pytest.approx(0.90, abs=0.005)
    assert formula("optimes", sizes) == Volume(440_000, 6 * 64 * 480, 0)
    assert formula("local+fwd-bwd-le", sizes) == Volume(0, 17 * 6 * 64 * 480, 17 * 6 * 64 * 480)
    assert volume["local"] == 0


def test_steps_are_scaled_up_to_an_epoch() -> None:
    part, all_of_it = (one_epoch(open_run("sync-sgd", batch=4), steps) for steps in (1, 0))
    assert part.bytes["gradients"] == all_of_it.bytes["gradients"]
    assert part.bytes["order"] == all_of_it.bytes["order"]


def test_bfloat16_halves_what_optimes_pushes() -> None:
    plain, short = (one_epoch(open_run("optimes", {"protect": {"format": name}})) for name in ("float32", "bfloat16"))
    assert short.bytes["embeddings"] * 2 == plain.bytes["embeddings"]
    assert short.bytes["parameters"] == plain.bytes["parameters"]
