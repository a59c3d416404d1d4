"""FedDEP: what its parts are in their limits, what crosses and when, and that it runs wherever other methods do."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isthmus.api import fit
from isthmus.core.errors import IsthmusError
from isthmus.core.random import normals
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.silo import Silo
from isthmus.methods import catalogue, nearest_rows
from isthmus.methods.compose import compose, tables_of
from isthmus.methods.exchange.base import Nothing
from isthmus.methods.exchange.clusters import group
from isthmus.methods.exchange.generated import LiveGenerated
from isthmus.methods.exchange.prototypes import FAR, OF, OWN, WHOSE, LivePrototypes
from isthmus.methods.method import Method
from isthmus.methods.nearest_rows import distances_to_groups
from isthmus.methods.objective.base import Objective
from isthmus.methods.objective.reconstruction import LiveReconstruction
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.nn.embedding_fused import FusedGNN
from isthmus.runs.config import resolve
from isthmus.testing.runs import resumed, small_silos, uneven_silos, walk
from isthmus.train.loop import train
from isthmus.train.result import Result
from isthmus.train.training import Training
from tests.helpers.small import losses, open_method, open_of, owners, small_graph

GRAPH, THREE = small_graph(60, 300), torch.arange(60) % 3
FULL, SAMPLED = {}, {"batch": 6, "fanout": (2,)}


def feddep(**asked: object) -> Method:
    """FedDEP with one epoch for its encoders, groups of two nodes or more, and what else is asked."""
    tables: dict[str, object] = {"phase": {"encode": {"epochs": 1, "exchange": {"clusters": 4, "smallest": 2}}}}
    return compose(compose(catalogue.get("feddep"), tables), asked)


def opened(
    method: Method | None = None, parts: list[Silo] | None = None, model: str = "sage-gcn", **training: object
) -> Training:
    parts = split_graph(GRAPH, THREE, 3) if parts is None else parts
    return open_of(method or feddep(), parts, model, **{"epochs": 4, **training})


def in_last_phase(method: Method | None = None, model: str = "sage-gcn", **training: object) -> Training:
    """A run that stands at the beginning of its second phase."""
    run = opened(method, model=model, **training)
    for _ in walk(run):
        pass
    run.go_on(1)
    return run


# ---- limits


@pytest.mark.parametrize("how", [FULL, SAMPLED], ids=["full", "sampled"])
def test_without_generated_rows_it_is_fedavg_of_its_classifier(how: dict[str, object]) -> None:
    """No generated row is kept: the classifier learns as if there were no generator at all."""
    never = feddep(exchange={"rate": 0.0})
    plain = never.with_phase("train", exchange=Nothing(), objective=Objective(), learns=("classifier",))
    a, b = (train(opened(method, **how)) for method in (never, plain))
    torch.testing.assert_close(losses(a), losses(b), rtol=1e-12, atol=0)
    ours = a.training.learner.classifier.sets.everything()
    for name, tensor in b.training.learner.classifier.sets.everything().items():
        if not name.startswith("fuse."):  # what reads generated rows; of no use here, but decayed as a weight is
            torch.testing.assert_close(ours[name], tensor, rtol=1e-12, atol=0)


def test_with_generated_rows_it_is_another_model() -> None:
    """As soon as the generator believes that neighbours are missing, which it is made to believe here."""
    a, b = in_last_phase(feddep(exchange={"rate": 0.0})), in_last_phase(feddep(exchange={"rate": 1.0}))
    for run in (a, b):
        generator = run.learner.models["generator"].module
        generator.number.bias.data.fill_(2.0)
    first = [next(iter(_losses(run))) for run in (a, b)]
    assert abs(first[0] - first[1]) > 1e-6


def _losses(run: Training) -> list[float]:
    return [run.progress.last_loss for _ in walk(run)]


def test_groups_of_one_are_the_embeddings_themselves() -> None:
    """With as many clusters as nodes and no smallest group, what is shared are all rows: nothing is grouped."""
    run = opened(feddep(phase={"encode": {"exchange": {"clusters": 60, "smallest": 1}}}))
    exchange = run.stage.exchange
    assert isinstance(exchange, LivePrototypes)
    told = exchange.hand_over()["objective"]
    rows = exchange.embeddings()
    torch.testing.assert_close(told[OWN][told[OF]], rows, rtol=1e-12, atol=0)
    mine = told[WHOSE][:, 0] == 0
    torch.testing.assert_close(told[FAR][mine], rows[20:], rtol=1e-12, atol=0)


def test_depth_nought_shares_features() -> None:
    run = opened(feddep(models={"encoder": {"depth": 0}}))
    exchange = run.stage.exchange
    assert isinstance(exchange, LivePrototypes)
    x = run.stage.site.stack.x
    torch.testing.assert_close(exchange.rows(), x if isinstance(x, Tensor) else x.dense())
    torch.testing.assert_close(exchange.embeddings(), exchange.rows() / exchange.rows().norm(dim=1, keepdim=True))
    assert run.learner.models["generator"].module.width == GRAPH.schema.features


@pytest.mark.parametrize("model", ["sage-gcn", "sage"])
def test_the_classifier_reads_the_mean_of_generated_rows_in_every_layer(model: str) -> None:
    """Against the paper's equations, written out: [a, m] W = a W_a + m W_m; with sage a node has its own."""
    run = in_last_phase(model=model)
    site, exchange = run.stage.site, run.stage.exchange
    assert isinstance(exchange, LiveGenerated) and isinstance(site.net, FusedGNN)
    site.learner.models["generator"].module.number.bias.data.fill_(3.0)
    seeds = next(iter(run.stage.epoch_seeds(run.progress)))
    work = run.stage.works(seeds, run.progress.step)[0]
    this = site.passing(training=False)
    from isthmus.engine.forward import forward

    with torch.no_grad():
        got = forward(site.net, exchange, work.batch, this)
        mended = exchange._mended
    assert mended is not None and bool((mended.abs().sum(1) > 0).all())
    stack, net = site.stack, site.net
    x = stack.x if isinstance(stack.x, Tensor) else stack.x.dense()
    itself = model == "sage-gcn"  # whether a node is one of those that the mean is of
    dense = torch.eye(stack.rows, dtype=x.dtype) * itself
    dense.index_put_((stack.ends[1], stack.ends[0]), torch.ones(stack.ends.shape[1], dtype=x.dtype), accumulate=True)
    mean = dense / dense.sum(1, keepdim=True).clamp(min=1.0)
    expected = torch.zeros(stack.rows, len(site.schema.labels), dtype=x.dtype)
    for silo, (a, b) in enumerate(zip(stack.ptr, stack.ptr[1:], strict=False)):
        own, m = mean[a:b, a:b], mended[a:b]
        assert net.enter is not None
        h = (x[a:b] @ net.enter.weight[silo] + net.enter.bias[silo] + m @ net.fuse[0].weight[silo]).relu()
        for place, layer in enumerate(net.layers):
            added = m @ net.fuse[place + 1].weight[silo]
            if itself:
                h = own @ h @ layer.lin.weight[silo] + layer.bias[silo] + added
            else:
                h = own @ h @ layer.near.weight[silo] + h @ layer.own.weight[silo] + layer.own.bias[silo] + added
            h = h.relu() if place == 0 else h
        expected[a:b] = h
    torch.testing.assert_close(got, expected[seeds.index].detach(), rtol=1e-10, atol=1e-12)


def test_losses_of_the_generator_are_those_of_the_paper() -> None:
    """Against loops over nodes, generated rows, hidden neighbours and prototypes."""
    run = in_last_phase(feddep(objective={"count": 0.3, "own": 0.7, "others": 0.2}))
    objective, site, step = run.stage.objective, run.stage.site, run.progress.step
    assert isinstance(objective, LiveReconstruction)
    seeds = next(iter(run.stage.epoch_seeds(run.progress)))
    work = run.stage.works(seeds, step)[0]
    active = torch.tensor([True, False, True])
    got = objective.node_losses([work.batch], active).total()
    stack, state, on = site.stack, objective.state, objective._pass
    visible = (~objective.impaired.hidden).nonzero().flatten()
    codes = on.encode(visible, step)
    counts = on.generator.count(codes.code, codes.rows)
    wanted = torch.ones(len(visible), on.generator.most, dtype=torch.bool)
    made = on.make(codes, wanted, step, noisy=True).rows.view(len(visible), on.generator.most, -1)
    expected = torch.zeros((), dtype=torch.float64)
    for silo in (0, 2):
        mine = [i for i, v in enumerate(visible.tolist()) if stack.ptr[silo] <= v < stack.ptr[silo + 1]]
        total = torch.zeros((), dtype=torch.float64)
        for i in mine:
            v = int(visible[i])
            lost = [int(u) for u, w in stack.ends.T.tolist() if w == v and objective.impaired.hidden[u]]
            total = total + 0.3 * torch.nn.functional.smooth_l1_loss(counts[i], counts.new_tensor(float(len(lost))))
            for p in range(min(len(lost), on.generator.most)):
                z = made[i, p]
                near = [(z - state[OWN][state[OF][u]]).square().sum() for u in lost if state[OF][u] >= 0]
                total = total + 0.7 * torch.stack(near).min()
                for other in {0, 1, 2} - {silo}:
                    at = (state[WHOSE] == torch.tensor([silo, other])).all(1)
                    total = total + 0.2 * (z - state[FAR][at]).square().sum(1).min()
        expected = expected + total / len(mine)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("entries", [1, 2**21])
def test_distances_to_groups_are_those_of_a_loop(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three, one and two rows, of which shorter ones are filled up; however many are compared at a time."""
    monkeypatch.setattr(nearest_rows, "ENTRIES", entries)
    rows, table = normals(1, torch.arange(7), 4).requires_grad_(), normals(2, torch.arange(6), 4)
    groups = torch.tensor([[0, 4, 2], [1, 1, 1], [5, 3, 5]])
    got = distances_to_groups(rows, table, groups)
    away = torch.cdist(rows, table).square()
    wanted = away[:, [0, 4, 2]].amin(1) + away[:, 1] + away[:, [5, 3]].amin(1)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(each.sum(), rows)[0] for each in (got, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)
    assert distances_to_groups(rows, table, groups[:0]).tolist() == [0.0] * 7


def test_a_generator_that_predicts_no_neighbour_for_any_node_goes_on_learning_their_number() -> None:
    """With a ReLU numbers below 0 have no gradient: one step too far, and nothing is ever generated again."""
    run = in_last_phase()
    number = run.learner.models["generator"].module.number
    number.bias.data.fill_(-9.0)
    work = run.stage.works(next(iter(run.stage.epoch_seeds(run.progress))), run.progress.step)[0]
    run.stage.objective.node_losses([work.batch], torch.tensor([True] * 3)).total().backward()
    assert bool((number.bias.grad < -0.5).all())  # a step against the gradient raises them


# ---- what a run tells of it


def test_figures_are_those_of_loops() -> None:
    """Of the only step of a round: neighbours that were hidden and predicted, and distances of rows made for them."""
    run = in_last_phase()
    objective, site, step = run.stage.objective, run.stage.site, run.progress.step
    assert isinstance(objective, LiveReconstruction)
    on, state, stack = objective._pass, objective.state, site.stack
    run.learner.models["generator"].module.number.bias.data.fill_(1.5)
    visible = (~objective.impaired.hidden).nonzero().flatten()
    codes = on.encode(visible, step)
    count = on.generator.count(codes.code, codes.rows).detach()
    wanted = torch.ones(len(visible), on.generator.most, dtype=torch.bool)
    made = on.make(codes, wanted, step, noisy=True).rows.detach().view(len(visible), on.generator.most, -1)
    next(iter(walk(run)))
    found = objective.figures()
    hidden = objective.impaired.hidden
    for silo in range(3):
        nodes = [(i, int(v)) for i, v in enumerate(visible) if stack.ptr[silo] <= v < stack.ptr[silo + 1]]
        lost = {v: [int(u) for u, w in stack.ends.T.tolist() if w == v and hidden[u]] for _, v in nodes}
        rows = [(made[i, p], v) for i, v in nodes for p in range(min(len(lost[v]), on.generator.most))]
        own = [min(float((z - state[OWN][state[OF][u]]).square().sum()) for u in lost[v]) for z, v in rows]
        others = [
            float((z - state[FAR][(state[WHOSE] == torch.tensor([silo, j])).all(1)]).square().sum(1).min())
            for z, _ in rows for j in {0, 1, 2} - {silo}
        ]  # fmt: skip
        expected = {
            "hidden_neighbours": sum(map(len, lost.values())) / len(nodes),
            "predicted_neighbours": float(count[[i for i, _ in nodes]].mean()),
            "distance_own": sum(own) / len(own),
            "distance_others": sum(others) / len(others),
        }
        assert {name: float(found[name][silo]) for name in expected} == pytest.approx(expected, rel=1e-10)


def test_prototypes_and_merged_groups_are_told_by_silo() -> None:
    parts = split_graph(GRAPH, torch.tensor([0] * 40 + [1] * 17 + [2] * 3), 3)
    run = opened(feddep(phase={"encode": {"exchange": {"clusters": 6, "smallest": 4}}}), parts)
    train(run)
    found = run.stage.objective.figures()
    sent, merged = found["prototypes"].tolist(), found["merged_groups"].tolist()
    assert [a + b for a, b in zip(sent[:2], merged, strict=False)] == [6, 6] and sent[2] == merged[2] == 0
    assert merged[1] > 0 and found["smallest_group"][:2].min() >= 4 and found["smallest_group"][2].isnan()
    assert found["prototypes_received"].tolist() == [sum(sent) - each for each in sent]


def test_rows_of_scored_nodes_are_counted_and_their_lack_is_said() -> None:
    """The generator is made to predict three neighbours for every node, then none."""
    run = in_last_phase()
    generator, exchange = run.learner.models["generator"].module, run.stage.exchange
    for bias, rows, share in ((3.0, 3.0, 1.0), (-3.0, 0.0, 0.0)):
        generator.number.bias.data.fill_(bias)
        generator.number.weight.data.fill_(0.0)
        run.stage.scorer.logits(1)
        figures = exchange.figures()
        assert figures["rows_a_node"].tolist() == [rows] * 3 and figures["nodes_with_rows"].tolist() == [share] * 3
        said = "Nothing was generated for nodes of silo-0, silo-1, silo-2" in " ".join(exchange.notes())
        assert said == (not rows)


# ---- groups


def test_groups_that_are_too_small_are_merged_into_their_nearest() -> None:
    rows = torch.cat([torch.zeros(6, 2), torch.full((5, 2), 10.0), torch.tensor([[11.0, 11.0]])]).double()
    alone = group(rows, 3, 1, seed=0)
    merged = group(rows, 3, 2, seed=0)
    assert sorted(alone.sizes.tolist()) == [1, 5, 6] and sorted(merged.sizes.tolist()) == [6, 6]
    torch.testing.assert_close(merged.means[merged.of[-1]], rows[6:].mean(0))
    assert merged.of[-1] == merged.of[6]


def test_a_silo_smaller_than_the_smallest_group_has_none() -> None:
    assert len(group(torch.rand(4, 3), 2, 5, seed=0).means) == 0
    assert len(group(torch.rand(5, 3), 2, 5, seed=0).means) == 1
    assert len(group(torch.rand(0, 3), 2, 1, seed=0).means) == 0


@pytest.mark.parametrize("smallest", [1, 3, 7])
def test_every_group_has_the_mean_of_its_nodes_and_is_large_enough(smallest: int) -> None:
    rows = normals(1, torch.arange(40), 5)
    found = group(rows, 8, smallest, seed=3)
    sizes = Counter(found.of.tolist())
    assert min(sizes.values()) >= smallest and sum(sizes.values()) == 40
    for number, mean in enumerate(found.means):
        torch.testing.assert_close(mean, rows[found.of == number].mean(0))


# ---- what crosses


@pytest.mark.parametrize("how", [FULL, SAMPLED], ids=["full", "sampled"])
def test_nothing_crosses_in_training_but_parameters_of_both_models_and_metrics(how: dict[str, object]) -> None:
    """Each model once a round, from every silo to the server and back; encoders never."""
    run = opened(**how)
    result = train(run)
    table = run.wire.ledger.table().to_pylist()
    during = [line for line in table if line["purpose"] not in ("setup", "handover", "end", "test, as trained")]
    assert {line["purpose"] for line in during} == {"round", "validation", "losses"}
    assert {line["kind"] for line in during} == {"parameters", "metrics"}
    moved = [line for line in table if line["kind"] == "parameters"]
    assert {(line["purpose"], line["model"]) for line in moved} == {("round", "classifier"), ("round", "generator")}
    models, rounds = run.learner.models, 3  # an epoch each, and one was the encoders'
    sizes = {name: sum(p[0].numel() for p in models[name].sets.parameters.values()) for name in models}
    expected = {name: rounds * 3 * 2 * sizes[name] * 8 for name in ("classifier", "generator")}
    assert run.wire.ledger.by_model() == {**expected, "encoder": 0}
    assert result.bytes["parameters"] == sum(expected.values())


def test_prototypes_leave_once_before_training_as_many_bytes_as_were_sent() -> None:
    """d_z * 4 bytes for each prototype that a silo has, to every other silo; d_z is 8 here."""
    parts = split_graph(GRAPH, torch.tensor([0] * 40 + [1] * 17 + [2] * 3), 3)
    method = feddep(phase={"encode": {"exchange": {"clusters": 6, "smallest": 4}}})
    run = open_of(method, parts, "sage-gcn", torch.float32, epochs=4)
    train(run)
    told = [line for line in run.wire.ledger.table().to_pylist() if line["kind"] == "prototypes"]
    assert {(line["purpose"], line["messages"]) for line in told} == {("handover", 1)}
    own, first = run.stage.objective.state[OF], run.stage.site.stack.ptr
    sent = [len(own[a:b][own[a:b] >= 0].unique()) for a, b in zip(first, first[1:], strict=False)]
    assert sent[0] > sent[1] > sent[2] == 0 and len(run.stage.objective.state[OWN]) == sum(sent)
    expected = {(f"silo-{a}", f"silo-{b}"): sent[a] * 8 * 4 for a in range(2) for b in range(3) if a != b}
    assert {(line["sender"], line["receiver"]): line["bytes"] for line in told} == expected


def test_a_generator_may_stay_at_home() -> None:
    home = feddep().with_phase("train", sync=FedAvg(private=("generator",)))
    shared, own = (train(opened(method)) for method in (feddep(), home))
    sets = own.training.learner.models["generator"].sets.parameters
    assert any(not torch.equal(p[0], p[1]) for p in sets.values())
    assert own.bytes["parameters"] < shared.bytes["parameters"]
    everywhere = shared.training.learner.models["generator"].sets.parameters
    assert all(torch.equal(p[0], p[1]) for p in everywhere.values())


def test_edges_between_silos_stay_unknown() -> None:
    run = opened()
    assert all(silo.h == 0 for silo in run.federation.silos)
    with pytest.raises(IsthmusError, match="score=own"):
        fit(small_silos(), "feddep", "sage-gcn", settings={"score": "across"})


# ---- wherever other methods run


@pytest.mark.parametrize("how", [FULL, SAMPLED], ids=["full", "sampled"])
def test_it_resumes_bit_for_bit_in_either_phase(how: dict[str, object]) -> None:
    encode = {"epochs": 2, "exchange": {"clusters": 9}}
    whole, again = resumed(lambda: opened(feddep(phase={"encode": encode}), **how), [1, 2, 3, 4])
    told = whole.training.stage.objective.figures()
    assert any("fewer than 9 prototypes" in note for note in whole.training.federation.notes)
    for epoch, result in again.items():
        assert losses(result) == losses(whole)[-len(losses(result)) :] or not losses(result), epoch
        for name, figures in result.training.stage.objective.figures().items():
            torch.testing.assert_close(figures, told[name], rtol=0, atol=0, equal_nan=True, msg=f"{epoch}, {name}")
        assert set(whole.training.federation.notes) == set(result.training.federation.notes), epoch
        for name, tensor in whole.training.learner.everything().items():
            assert torch.equal(tensor, result.training.learner.everything()[name]), (epoch, name)


ODD = {"one": small_silos(1, 20), "uneven": uneven_silos(), "many": small_silos(9, 45)}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD.keys())
def test_odd_federations_have_a_result(parts: list[Silo]) -> None:
    """One silo; silos without edges, and one without nodes; silos with fewer nodes than clusters."""
    result = train(opened(compose(catalogue.get("feddep"), {"phase": {"encode": {"epochs": 1}}}), parts))
    assert bool(torch.isfinite(result.test.overall[0]))
    if len(parts) > 1:
        [note] = [note for note in result.training.federation.notes if "fewer than 10 prototypes" in note]
        assert len(note) < 400


def test_scores_on_the_merged_graph_read_no_generated_rows() -> None:
    """There is nothing to mend: the classifier alone, on all edges."""
    result: Result = fit(
        small_silos(3, 45), "feddep", model="sage-gcn",
        settings={"train.epochs": 3, "phase.encode.epochs": 1, "model.hidden": 8, "score": "own,global"},
    )  # fmt: skip
    assert [verdict.how for verdict in result.verdicts] == ["own", "global"]


def test_options_survive_a_configuration_file() -> None:
    asked = {"models": {"encoder": {"depth": 1}, "generator": {"most": 3}}, "exchange": {"clusters": 7}}
    method = compose(catalogue.get("feddep"), asked)
    assert method.phases[0].exchange.clusters == 7
    assert compose(catalogue.get("feddep"), tables_of(method)) == method
    for wrong in ({"encoder": {"deep": 1}}, {"decoder": {"depth": 1}}, {"encoder": 3}):
        bad = {"models": wrong}
        with pytest.raises(IsthmusError, match="encoder|depth"):
            compose(catalogue.get("feddep"), bad)
    for bad in ({"objective": {"hide": 1.0}}, {"exchange": {"rate": 2.0}}, {"exchange": {"clusters": 0}}):
        with pytest.raises(IsthmusError, match="hide|rate|clusters"):
            compose(catalogue.get("feddep"), bad)


def test_layers_are_those_of_the_paper_or_of_its_authors_code_and_no_others() -> None:
    assert resolve({"method": "feddep"}).model.name == "sage-gcn"
    assert resolve({"method": "feddep", "model": {"name": "sage"}}).model.name == "sage"
    with pytest.raises(IsthmusError, match="has the model 'sage-gcn' or 'sage'.*not 'gin'"):
        resolve({"method": "feddep", "model": {"name": "gin"}})


def test_labels_on_edges_are_refused() -> None:
    graph: Graph = small_graph(30, 140, edge_task=True)
    with pytest.raises(IsthmusError, match="Labels lie on edges, and .* labels on nodes; use another method"):
        open_of(feddep(), split_graph(graph, owners(3), 3), "sage-gcn")
    with pytest.raises(IsthmusError, match="exchange=generated needs the model 'classifier'"):
        open_method("fedavg", GRAPH, THREE, 3, options={"exchange": {"name": "generated"}})
    assert replace(feddep(), name="x").last.net == "classifier"
