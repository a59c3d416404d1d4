"""Figures of alerts are what counting by hand finds, and thresholds never see the test split."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_curve

from isthmus.train.alert_figures import (
    AlertSettings,
    RareScores,
    alert_figures,
    best_f1,
    hits_in,
    mean_of_alerts,
    precision_recall,
    within_budget,
)

SETTINGS = AlertSettings((2, 3, 50), 2)


def scores(score: list[float], truth: list[int], day: list[int] | None = None, ptr: tuple[int, ...] = ()) -> RareScores:
    days = None if day is None else torch.tensor(day)
    names = tuple(f"bank-{i}" for i in range(max(len(ptr) - 1, 1)))
    given = torch.tensor(score, dtype=torch.float64), torch.tensor(truth, dtype=torch.bool)
    return RareScores(*given, days, ptr or (0, len(score)), names)


TEST = scores([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 0, 1, 0, 0, 1], [0, 0, 0, 1, 1, 1])
VALID = scores([0.95, 0.65, 0.3, 0.2], [1, 1, 0, 0], [7, 7, 8, 8])


def test_figures_by_hand():
    found = alert_figures(VALID, TEST, SETTINGS, pool=False)
    mine = found["silos"]["bank-0"]
    assert (mine["scored"], mine["rare"], mine["base_rate"]) == (6, 3, 0.5)
    assert mine["at"]["2"] == {"alerts": 2, "precision": 0.5, "recall": pytest.approx(1 / 3), "lift": 1.0}
    assert mine["at"]["3"]["precision"] == pytest.approx(2 / 3)
    assert mine["at"]["50"] == {"alerts": 6, "precision": 0.5, "recall": 1.0, "lift": 1.0}
    # two a day: 0.9 and 0.8 on the first, 0.6 and 0.5 on the second
    assert mine["daily"] == {"days": 2, "alerts": 4, "precision": 0.25, "recall": pytest.approx(1 / 3), "lift": 0.5}
    # in validation 0.65 separates both classes; in test three scores lie above it
    best = mine["thresholds"]["f1"]
    assert (best["threshold"], best["alerts"], best["alerts_a_day"]) == (0.65, 3, 1.5)
    assert best["precision"] == pytest.approx(2 / 3) == best["recall"]
    assert mine["thresholds"]["budget"]["threshold"] == 0.2  # two a day on two days: all four
    assert "pooled" not in found


@pytest.mark.parametrize(
    ("score", "budget", "threshold", "equal"),
    [
        ([0.9, 0.8, 0.7, 0.6], 2, 0.8, 0),
        ([0.9, 0.8, 0.8, 0.6], 2, 0.9, 2),
        ([0.9, 0.9, 0.9, 0.6], 2, None, 3),
        ([0.9, 0.9, 0.6, 0.6], 2, 0.9, 0),
        ([0.9, 0.6, 0.6], 3, 0.6, 0),
        ([0.9], 5, 0.9, 0),
    ],
)
def test_equal_scores_never_exceed_the_budget(score: list[float], budget: int, threshold: float | None, equal: int):
    assert within_budget(torch.tensor(score, dtype=torch.float64), budget) == (threshold, equal)


def test_a_budget_that_no_threshold_keeps_and_the_busiest_day_are_told():
    valid = scores([0.9] * 5 + [0.1], [1] * 5 + [0], [7, 7, 7, 8, 8, 8])
    told = alert_figures(valid, TEST, SETTINGS, False)["silos"]["bank-0"]["thresholds"]["budget"]
    assert (told["threshold"], told["equal"], told["alerts"], told["busiest_day"]) == (None, 5, 0, 0)
    valid = scores([0.9, 0.6, 0.6, 0.6, 0.2, 0.1], [1, 0, 0, 0, 0, 0], [7, 7, 7, 8, 8, 8])
    told = alert_figures(valid, TEST, AlertSettings((2,), 2), False)["silos"]["bank-0"]["thresholds"]["budget"]
    assert (told["threshold"], told["equal"], told["alerts_a_day"], told["busiest_day"]) == (0.6, 0, 2.0, 3)


def test_thresholds_do_not_look_at_the_test_split():
    turned = scores(TEST.score.tolist(), [0, 1, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1])
    each = [alert_figures(VALID, test, SETTINGS, False)["silos"]["bank-0"] for test in (TEST, turned)]
    one, other = (figures["thresholds"] for figures in each)
    assert {k: v["threshold"] for k, v in one.items()} == {k: v["threshold"] for k, v in other.items()}
    assert one["f1"]["precision"] != other["f1"]["precision"]
    changed = scores([0.95, 0.65, 0.3, 0.2], [1, 0, 0, 0], [7, 7, 8, 8])
    assert alert_figures(changed, TEST, SETTINGS, False)["silos"]["bank-0"]["thresholds"]["f1"]["threshold"] == 0.95


def test_each_silo_has_its_own_and_all_are_pooled():
    both = scores([0.9, 0.1, 0.8, 0.2], [1, 0, 0, 1], ptr=(0, 2, 4))
    found = alert_figures(None, both, SETTINGS, pool=True)
    assert [each["at"]["2"]["precision"] for each in found["silos"].values()] == [0.5, 0.5]
    assert found["pooled"]["at"]["3"]["recall"] == 1.0 and found["pooled"]["at"]["2"]["precision"] == 0.5
    assert found["silos"]["bank-0"]["thresholds"] == {} and "daily" not in found["silos"]["bank-0"]


def test_nothing_is_invented_where_nothing_is_defined():
    none = alert_figures(VALID, scores([], []), SETTINGS, False)["silos"]["bank-0"]
    assert none == {"scored": 0, "rare": 0, "base_rate": None}
    diverged = alert_figures(VALID, scores([float("nan")], [1]), SETTINGS, False)["silos"]["bank-0"]
    assert diverged == {"scored": 1, "rare": 1, "base_rate": 1.0}
    honest = alert_figures(VALID, scores([0.5, 0.4], [0, 0]), SETTINGS, False)["silos"]["bank-0"]
    assert honest["at"]["2"] == {"alerts": 2, "precision": 0.0, "recall": None, "lift": None} and honest["curve"] == {}


def test_equal_scores_at_the_cut_count_by_their_share():
    tied = scores([0.5] * 10, [1] * 2 + [0] * 8)
    assert hits_in(tied, 5) == 1.0
    assert hits_in(scores([0.9, 0.5, 0.5], [0, 1, 0]), 2) == 0.5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=40))
def test_curve_and_best_f1_are_those_of_scikit_learn(pairs: list[tuple[int, bool]]):
    score, truth = [p[0] / 8 for p in pairs], [int(p[1]) for p in pairs]
    if not any(truth):
        return
    mine = scores(score, truth)
    precision, recall, _ = precision_recall_curve(truth, score)
    curve = precision_recall(mine)
    assert curve["recall"] == pytest.approx(recall[:-1][::-1].tolist(), abs=1e-6)
    assert curve["precision"] == pytest.approx(precision[:-1][::-1].tolist(), abs=1e-6)
    f1 = [f1_score(truth, np.array(score) >= t) for t in sorted(set(score))]
    assert f1_score(truth, np.array(score) >= best_f1(mine)) == pytest.approx(max(f1))


def test_over_seeds_numbers_are_means():
    one = {"class": "1", "top": [2], "silos": {"a": {"base_rate": 0.5, "at": {"2": {"precision": 0.5, "lift": None}}}}}
    two = {"class": "1", "top": [2], "silos": {"a": {"base_rate": 0.5, "at": {"2": {"precision": 1.0, "lift": None}}}}}
    assert mean_of_alerts([one, two])["silos"]["a"]["at"]["2"] == {"precision": 0.75, "lift": None}
