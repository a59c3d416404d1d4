"""A model that does no better than a constant is told of, by every metric, and one that does better is not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.graph.graph import TEST, TRAIN, UNUSED, Graph, Schema
from isthmus.train.constant import constant_scores, label_counts, no_better_than_constant
from isthmus.train.metrics import metric_names, score_silos, weighted_mean
from isthmus.train.result import Result
from tests.helpers.small import run_method, small_graph

SCHEMAS = {
    "three classes": Schema(5, ("a", "b", "c")),
    "two classes": Schema(5, ("no", "yes")),
    "tasks": Schema(5, ("t", "u"), task="tasks"),
}
PTR = (0, 20, 20, 50)  # the second silo has nothing to score


def labels_of(schema: Schema) -> torch.Tensor:
    rng = np.random.default_rng(3)
    if schema.task == "tasks":
        return torch.from_numpy(rng.choice([-1, 0, 1], (50, 2), p=[0.1, 0.7, 0.2]))
    chance = [0.6, 0.3, 0.1] if len(schema.labels) == 3 else [0.8, 0.2]
    return torch.from_numpy(rng.choice(len(schema.labels), 50, p=chance))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_constants_reach_what_constant_predictions_score(kind: str) -> None:
    """Against predictions that are constant indeed, scored as every run is."""
    schema = SCHEMAS[kind]
    y, minority = labels_of(schema), torch.tensor([1, 1] if schema.task == "tasks" else 1)
    counts = label_counts(y, PTR, schema)
    width = len(schema.labels)
    answers = torch.eye(width)[:, None].expand(width, 50, width) if schema.task == "classes" else torch.zeros(1, 50, 2)
    scored = torch.stack([score_silos(each, y, PTR, schema, minority) for each in answers], 1)  # silos, predictors
    for place, metric in enumerate(metric_names(schema)):
        found = constant_scores(metric, counts, minority, schema)
        expected = scored[..., place]
        if metric == "f1_minority":
            expected = expected[:, [1]]  # who always answers with the rare class
        if "pr_auc" in metric:
            expected = expected[:, [0]]
        torch.testing.assert_close(found, expected.to(found), equal_nan=True)


def test_the_best_constant_is_one_answer_for_all_silos() -> None:
    counts = torch.tensor([[9.0, 1.0], [2.0, 8.0]])
    each = constant_scores("accuracy", counts, torch.tensor(1), Schema(1, ("a", "b", "c")))
    assert float(weighted_mean(each, torch.tensor([10.0, 10.0])).max()) == pytest.approx(11 / 20)


@pytest.mark.parametrize(
    ("score", "constant", "useless"),
    [(0.37, 0.37, True), (0.2, 0.37, True), (0.38, 0.37, True), (0.40, 0.37, False), (0.985, 0.97, False),
     (0.015, 0.015, True), (0.03, 0.015, False), (float("nan"), 0.4, False), (1.0, 1.0, True)],
)  # fmt: skip
def test_the_margin_is_small_beside_the_constant_and_beside_what_it_lacks(
    score: float, constant: float, useless: bool
) -> None:
    assert no_better_than_constant(score, constant) == useless


# ---- runs


def graph_of(tells: float) -> Graph:
    """Sixty nodes without edges; the first feature is the class, times ``tells``."""
    graph, y = small_graph(60, 0), torch.tensor([0, 0, 0, 1, 2]).repeat(12)
    split = torch.tensor([TRAIN, TEST], dtype=torch.int8)[torch.arange(60) % 2]
    x = torch.cat([tells * torch.nn.functional.one_hot(y, 3), torch.zeros(60, 2)], 1).float()
    return replace(graph, x=x, y=y, split=split)


def told(result: Result) -> list[str]:
    return [note for note in result.training.federation.notes if note.startswith("NO BETTER THAN A CONSTANT")]


@pytest.mark.parametrize("method", ["local", "fedavg", "centralised"])
def test_a_run_says_so_loudly(method: str) -> None:
    options = {"model": "mlp", "epochs": 30, "lr": 0.1}
    owner = torch.arange(60) // 2 % 2
    [note] = told(run_method(method, graph_of(0.0), owner, 2, **options))
    assert "test accuracy is" in note and "the answer 'a' for every node reaches" in note and "data.scale" in note
    assert told(run_method(method, graph_of(1.0), owner, 2, **options)) == []


def test_rankings_are_held_against_the_share_of_the_rare_class() -> None:
    graph = graph_of(0.0)
    assert graph.y is not None
    graph = replace(graph, y=(graph.y == 2).long(), schema=replace(graph.schema, labels=("no", "yes")))
    owner = torch.arange(60) // 2 % 2
    [note] = told(run_method("fedavg", graph, owner, 2, model="mlp", epochs=5))
    assert "test pr_auc is" in note and "one and the same score" in note


def test_a_test_split_of_one_class_tells_nothing() -> None:
    graph = graph_of(1.0)
    assert graph.split is not None and graph.y is not None
    one = graph.with_split(graph.split.where((graph.split != TEST) | (graph.y == 0), UNUSED))
    result = run_method("fedavg", one, torch.arange(60) // 2 % 2, 2, model="mlp", epochs=30, lr=0.1)
    assert told(result) == [] and any("one and the same label" in note for note in result.training.federation.notes)


def test_a_run_without_test_labels_says_nothing() -> None:
    graph = graph_of(0.0)
    assert graph.split is not None
    bare = graph.with_split(graph.split.where(graph.split != TEST, TRAIN))
    assert told(run_method("fedavg", bare, torch.arange(60) % 2, 2, model="mlp", epochs=2)) == []
