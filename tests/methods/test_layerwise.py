"""Layer-wise exchange: federated training that equals centralised training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TEST, TRAIN
from isthmus.methods.exchange.optimes import OptimES
from tests.helpers.small import assert_same, losses, owners, run_method, small_graph

BATCHES = [{}, {"batch": 4, "fanout": (2,), "epochs": 2}]
ids = ["full", "sampled"]


@pytest.mark.parametrize("training", BATCHES, ids=ids)
@pytest.mark.parametrize("silos", [2, 5, 15])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat", "pna"])
def test_exchange_with_adjoints_is_centralised_training(model: str, silos: int, training: dict) -> None:
    graph = small_graph(30, 140)
    options = {"norm": "batch"}
    if (
        model == "gin"
    ):  # a hidden unit that is active on a whole small batch has a true gradient of 0, which Adam blows up
        training = {**training, "optimiser": "sgd"}
    together = run_method("centralised", graph, owners(silos), silos, model, model_options=options, **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(silos), silos, model, model_options=options, **training)
    assert_same(together, apart)


@pytest.mark.parametrize("silos", [2, 5])
def test_multi_pna_too(silos: int) -> None:
    graph = small_graph(30, 140)
    training = {"batch": 4, "fanout": (3,), "epochs": 2}
    together = run_method("centralised", graph, owners(silos), silos, "multi-pna", **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(silos), silos, "multi-pna", **training)
    assert_same(together, apart)
    assert (
        abs(
            losses(together)[0]
            - losses(run_method("sync-sgd", graph, owners(silos), silos, "multi-pna", **training))[0]
        )
        > 1e-6
    )


@pytest.mark.parametrize("training", BATCHES, ids=ids)
def test_edges_too(training: dict) -> None:
    graph = small_graph(30, 140, edge_task=True)
    together = run_method("centralised", graph, owners(3), 3, "gin", **training)
    assert_same(together, run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, "gin", **training))


def test_without_adjoints_logits_are_centralised_and_gradients_are_not() -> None:
    graph = small_graph(30, 140)
    methods = ("centralised", "sync-sgd+fwd-le", "sync-sgd+fwd-bwd-le", "sync-sgd")
    runs = {name: run_method(name, graph, owners(3), 3, "gcn", epochs=1) for name in methods}
    first = {name: losses(result)[0] for name, result in runs.items()}
    assert first["sync-sgd+fwd-le"] == pytest.approx(first["centralised"], rel=1e-12)
    assert abs(first["sync-sgd"] - first["centralised"]) > 1e-3
    gradients = {
        name: result.training.learner.classifier.sets.parameters["enter.weight"].grad for name, result in runs.items()
    }
    assert torch.allclose(gradients["sync-sgd+fwd-bwd-le"], gradients["centralised"], rtol=1e-10, atol=1e-14)
    assert (gradients["sync-sgd+fwd-le"] - gradients["centralised"]).abs().max() > 1e-3


def test_local_batches_differ_from_joint_ones() -> None:
    graph = small_graph(30, 140)
    joint = run_method("fedavg+fwd-bwd-le", graph, owners(3), 3, batch=4, fanout=(2,))
    local = run_method("fedavg+fwd-bwd-le", graph, owners(3), 3, batch=4, fanout=(2,), batches="local")
    assert losses(joint) != losses(local)


def test_local_batches_in_full_serve_every_row() -> None:
    """With full batches every owner has computed every row, so that local batches give the exact exchange again."""
    graph = small_graph(30, 140)
    for method in ("sync-sgd+fwd-bwd-le", "fedavg+fwd-le", "local+fwd-bwd-le"):
        joint = run_method(method, graph, owners(3), 3, "sage", statistics="agreed")
        local = run_method(method, graph, owners(3), 3, "sage", statistics="agreed", batches="local")
        assert_same(joint, local, sets=(0,))


def test_owners_serve_only_what_they_have_sampled_themselves() -> None:
    graph = small_graph(60, 200)
    result = run_method("sync-sgd+fwd-bwd-le", graph, owners(3, 60), 3, "sage", batch=2, fanout=(2,), batches="local")
    stage = result.training.stage
    stack, roots = stage.layout.stack, stage.layout.pools[TRAIN].index[::5]
    sample = stage.passes.across["train"].sampler.sample(roots, step=0)
    halo = sample.rows[~stack.owned[sample.rows]]
    held = set(stack.keys[sample.rows[stack.owned[sample.rows]]].tolist())
    exchanged = torch.cat([asked.halo for asked in sample.asks])
    assert set(stack.keys[exchanged].tolist()) == set(stack.keys[halo].tolist()) & held
    assert 0 < len(exchanged) < len(halo)


@pytest.mark.parametrize("model", ["sage", "multi-pna"])
def test_untrimmed_batches_are_exact_too_and_not_the_same(model: str) -> None:
    """Batch normalisation sees the rows that only untrimmed layers compute."""
    graph, training = small_graph(30, 140), {"batch": 4, "fanout": (2,), "epochs": 2, "trim": False}
    options = {"norm": "batch"}
    together = run_method("centralised", graph, owners(5), 5, model, model_options=options, **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(5), 5, model, model_options=options, **training)
    assert_same(together, apart)
    trimmed = run_method("centralised", graph, owners(5), 5, model, model_options=options, **{**training, "trim": True})
    assert losses(trimmed) != losses(together)


def test_untrimmed_owners_serve_rows_at_every_layer() -> None:
    graph, training = small_graph(60, 200), {"batch": 2, "fanout": (2,), "batches": "local"}
    crossed = [
        run_method("sync-sgd+fwd-le", graph, owners(3, 60), 3, "sage", trim=trim, **training).bytes["embeddings"]
        for trim in (True, False)
    ]
    assert crossed[0] < crossed[1]


@pytest.mark.parametrize("base", ["local", "fedavg", "sync-sgd"])
@pytest.mark.parametrize("exchange", ["fwd-le", "fwd-bwd-le"])
def test_one_silo_has_nothing_to_exchange(base: str, exchange: str) -> None:
    graph, alone = small_graph(30, 140), torch.zeros(30, dtype=torch.int64)
    plain = run_method("centralised", graph, alone, 1, batch=4, fanout=(2,))
    with_exchange = run_method(f"{base}+{exchange}", graph, alone, 1, batch=4, fanout=(2,))
    assert_same(plain, with_exchange)
    assert with_exchange.bytes.get("embeddings", 0) == 0


def test_a_row_crosses_once_for_each_silo_that_holds_it() -> None:
    """Full batch, GCN, two layers: every halo row crosses at both layers, and its adjoint comes back."""
    graph = small_graph(30, 140)
    result = run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, "gcn", epochs=1)
    halo = sum(silo.h for silo in result.training.federation.silos)
    passes = 1 + 3  # one training step; validation after it, validation and test at the end
    assert result.bytes["embeddings"] == passes * 2 * halo * 8 * 8
    assert result.bytes["adjoints"] == 2 * halo * 8 * 8
    table = result.training.wire.ledger.table().to_pylist()
    talked = {(row["sender"], row["receiver"]) for row in table if row["kind"] == "embeddings"}
    plan = result.training.federation.plan
    assert talked == {(f"silo-{a}", f"silo-{b}") for (a, b), rows in plan.send.items() if len(rows)}


def test_bfloat16_halves_the_bytes_and_costs_accuracy_of_the_loss() -> None:
    graph = small_graph(30, 140)
    exact, short = (
        run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, "gcn", dtype=torch.float32, options={"protect": protect})
        for protect in ({}, {"format": "bfloat16"})
    )
    assert short.bytes["embeddings"] * 2 == exact.bytes["embeddings"]
    assert short.bytes["adjoints"] * 2 == exact.bytes["adjoints"]
    assert losses(short)[0] != losses(exact)[0]
    assert losses(short)[0] == pytest.approx(losses(exact)[0], rel=1e-2)


def test_optimes_of_one_silo_is_fedavg() -> None:
    graph, alone = small_graph(30, 140), torch.zeros(30, dtype=torch.int64)
    assert_same(run_method("fedavg", graph, alone, 1), run_method("optimes", graph, alone, 1))


def test_optimes_pushes_hidden_layers_once_a_round_and_once_before() -> None:
    graph = small_graph(30, 140)
    for scored, pushes in (("released", 4 + 1), ("fresh", 4 + 1 + 4 + 2)):  # and for each validation, and at the end
        options, training = {"exchange": {"scored_with": scored}}, {"epochs": 4, "model_options": {"layers": 3}}
        result = run_method("optimes", graph, owners(3), 3, "gcn", options, **training)
        halo = sum(silo.h for silo in result.training.federation.silos)
        assert result.bytes["embeddings"] == pushes * 2 * halo * 8 * 8  # layers 1 and 2 of 3; hidden 8, float64
        assert "adjoints" not in result.bytes


def test_optimes_reads_what_owners_computed_a_round_ago() -> None:
    """Without learning nothing ages: from the second push on, hidden halo rows are what their owners compute."""
    graph = small_graph(30, 140)
    result = run_method("optimes", graph, owners(3), 3, "gcn", epochs=3, lr=1e-30, weight_decay=0.0)
    exchange = result.training.stage.exchange
    kept = {name: rows.clone() for name, rows in exchange.state.items()}
    exchange.round_end()
    assert kept.keys() == {"layer-1", "filled"}
    assert torch.allclose(kept["layer-1"], exchange.state["layer-1"], rtol=1e-12)
    plain = run_method("fedavg", graph, owners(3), 3, "gcn", epochs=3, options={"exchange": {"halo": "placeholder"}})
    assert losses(plain)[0] != losses(result)[0]


@pytest.mark.parametrize("training", BATCHES, ids=ids)
def test_pooled_scores_are_the_centralised_ones(training: dict) -> None:
    graph = small_graph(30, 140)
    together = run_method("centralised", graph, owners(4), 4, "pna", pooled=True, **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(4), 4, "pna", pooled=True, **training)
    for split in ("valid", "test"):
        ours, theirs = (getattr(result, split).pooled_dict() for result in (apart, together))
        assert ours and ours == pytest.approx(theirs, nan_ok=True)


@given(seed=st.integers(0, 999), silos=st.integers(1, 6), nodes=st.integers(8, 30), edges=st.integers(0, 120))
@settings(max_examples=15, deadline=None)
def test_any_split_of_any_multigraph_is_exact(seed: int, silos: int, nodes: int, edges: int) -> None:
    """Isolated nodes, self-loops, parallel edges, ragged batches; some silos own nothing."""
    graph = small_graph(nodes, edges, seed)
    owner = torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(seed)) // 2 * 2 % silos
    training = {"batch": 3, "fanout": (2,), "epochs": 1, "seed": seed}
    together = run_method("centralised", graph, owner, silos, "gat", **training)
    assert_same(together, run_method("sync-sgd+fwd-bwd-le", graph, owner, silos, "gat", **training))


def test_what_cannot_be_exact_is_refused() -> None:
    with pytest.raises(IsthmusError, match=r"model.embed=true"):
        run_method("sync-sgd+fwd-le", small_graph(30, 140), owners(3), 3, "gcn", model_options={"embed": False})


def test_optimes_scores_with_rows_of_the_parameters_that_are_scored() -> None:
    """Where no parameter moves kept rows are fresh ones; where they move, only a push tells what they have become."""
    graph, owner = small_graph(30, 120), owners(3)
    stale = {"exchange": {"scored_with": "released"}}
    for rate, same in ((1e-30, True), (0.3, False)):
        fixed = {"epochs": 3, "lr": rate, "weight_decay": 0.0, "model_options": {"layers": 3}}
        fresh, kept = (run_method("optimes", graph, owner, 3, "gcn", options, **fixed) for options in (None, stale))
        assert losses(fresh) == losses(kept)  # what is trained is the same
        ours, theirs = (each.training.stage.scorer.logits(TEST)[0] for each in (fresh, kept))
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12) == same
        again = fresh.training.stage.scorer.logits(TEST)[0]
        assert torch.equal(ours, again)


def test_optimes_refuses_other_rows_to_score_with() -> None:
    with pytest.raises(IsthmusError, match="fresh, released"):
        OptimES(scored_with="old")
