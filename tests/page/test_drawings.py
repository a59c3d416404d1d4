"""Curves, bars and the federation as drawings: what they show is what is known, and every name is escaped."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("markupsafe", reason="the extra isthmus[page] is not installed")

from isthmus.core.errors import IsthmusError
from isthmus.page.charts import DrawnCurve, bar, chart
from isthmus.page.crossed import Crossed, OfParty
from isthmus.page.curves import live_curves
from isthmus.page.federation_drawing import MOST, edges, federation

BAD = '"><script>&'


def drawn(svg: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """Names and points of the curves of a chart, which must be well formed."""
    lines = ET.fromstring(str(svg)).iter("polyline")
    return [
        (line.attrib["data-name"], [tuple(map(float, each.split(","))) for each in line.attrib["points"].split()])  # type: ignore[misc]
        for line in lines
    ]


def test_a_curve_goes_where_its_values_go() -> None:
    ((name, points),) = drawn(chart("x", [DrawnCurve(BAD, [1, 2, 3, 4], [1.0, None, 4.0, float("nan")])], "step", str))
    assert name == BAD and len(points) == 2  # what is not known is left out
    assert points[0][0] < points[1][0] and points[0][1] > points[1][1]  # up is less on a screen


def test_long_curves_are_thinned_and_short_ones_have_a_dot() -> None:
    long = drawn(chart("x", [DrawnCurve("a", range(10_000), [float(i) for i in range(10_000)])], "step", str))[0][1]
    assert 200 < len(long) <= 300 and long == sorted(long, key=lambda p: -p[1])
    assert "<circle" in chart("x", [DrawnCurve("a", [5], [0.3])], "epoch", str)
    assert chart("x", [DrawnCurve("a", [], []), DrawnCurve("b", [1], [None])], "epoch", str) == ""


@pytest.mark.parametrize("values", [[0.0, 0.0], [1e-9, 2e-9], [-5.0, 5.0], [1e12, 3e12], [0.5, 0.5]])
def test_every_value_lies_on_the_chart(values: list[float]) -> None:
    for x, y in drawn(chart("x", [DrawnCurve("a", [1, 2], values)], "epoch", "{:.3g}".format, zero=True))[0][1]:
        assert 0 <= x <= 520 and 0 <= y <= 220


def test_bars_are_shares() -> None:
    widths = [float(ET.fromstring(str(bar(share)))[0].attrib["width"]) for share in (0.0, 0.5, 1.0, 7.0)]
    assert widths == [0.0, 50.0, 100.0, 100.0]


def test_an_edge_has_what_crossed_both_ways() -> None:
    pairs = {
        ("silo-0", "server"): {"ids": 5},
        ("server", "silo-0"): {"ids": 1, "parameters": 2},
        ("a", "b"): {"ids": 9},
    }
    found = Crossed([], [OfParty(name, 1, 1) for name in ("server", "silo-0", "a", "b")], pairs)
    first, second = edges(found)
    assert (first.first, first.second, first.there, first.back) == ("a", "b", 9, 0)
    assert (second.first, second.second, second.there, second.back) == ("server", "silo-0", 3, 5)
    assert second.kinds == [("ids of nodes", 6), ("model weights", 2)]


def test_the_federation_is_drawn_with_every_name_escaped() -> None:
    names = ["server", BAD, "silo-1"]
    pairs = {(BAD, "server"): {"ids": 5}, ("silo-1", BAD): {"ids": 7}}
    svg = federation(Crossed([], [OfParty(name, 1, 2) for name in names], pairs), {BAD: {"nodes": 30, "halo": 10}})
    titles = [title.text or "" for title in ET.fromstring(str(svg)).iter("title")]
    assert f"{BAD}: 30 nodes, 10 far ends of its cross edges" in titles
    assert any(title.startswith(f"server – {BAD}: 0 B to {BAD}, 5 B back") for title in titles)
    assert len(list(ET.fromstring(str(svg)).iter("path"))) == 2


def test_of_many_parties_the_busiest_are_drawn() -> None:
    names = [f"silo-{i}" for i in range(100)]
    svg = federation(Crossed([], [OfParty(name, i, i) for i, name in enumerate(names)], {}), {})
    texts = {text.text for text in ET.fromstring(str(svg)).iter("text")}
    assert texts == {f"silo-{i}" for i in range(100 - MOST, 100)}


def all_to_all(count: int) -> ET.Element:
    """The drawing of silos that all talk to each other and to the server."""
    names = ["server", *(f"silo-{i:02d}-{'x' * 30}" for i in range(count))]
    pairs = {(a, b): {"ids": 9} for a in names for b in names if a < b}
    sizes = {name: {"nodes": 8, "halo": 2} for name in names[1:]}
    return ET.fromstring(str(federation(Crossed([], [OfParty(name, 1, 1) for name in names], pairs), sizes)))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 15])
def test_no_silo_of_a_drawing_hides_another_or_its_name(count: int) -> None:
    svg = all_to_all(count)
    rings = [(float(c.get("cx")), float(c.get("cy")), float(c.get("r"))) for c in svg.iter("circle")  # type: ignore[arg-type]
             if c.get("class") == "boundary"]  # fmt: skip
    texts = [(float(t.get("x")), float(t.get("y")), t.get("text-anchor"), t.text or "") for t in svg.iter("text")  # type: ignore[arg-type]
             if t.get("class") == "party"]  # fmt: skip
    assert all(math.dist(a[:2], b[:2]) >= a[2] + b[2] for i, a in enumerate(rings) for b in rings[:i])
    left, _, width, _ = map(float, str(svg.get("viewBox")).split())
    for x, y, anchor, name in texts:
        wide = 7.5 * len(name)
        start = {"start": x, "middle": x - wide / 2, "end": x - wide}[str(anchor)]
        assert left - 20 <= start and start + wide <= left + width + 20
        assert all(math.dist((x, y - 4), ring[:2]) > ring[2] for ring in rings) or name == "server"


def test_amounts_stand_on_edges_that_are_few() -> None:
    few, many = ([t for t in all_to_all(count).iter("text") if t.get("class") == "amount"] for count in (5, 6))
    assert len(few) == 15 and many == []
    places = [(float(str(t.get("x"))), float(str(t.get("y")))) for t in few]
    assert all(abs(a[0] - b[0]) > 40 or abs(a[1] - b[1]) > 11 for i, a in enumerate(places) for b in places[:i])


def written(path: Path, lines: list[object]) -> Path:
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_curves_are_read_while_they_grow(tmp_path: Path) -> None:
    lines: list[object] = [{"step": s, "epoch": s, "loss": 1 / s} for s in (1, 2)]
    lines += [{"step": 2, "epoch": 2, "loss": 0.5, "valid": {"accuracy": 0.4, "f1": None}, "silo_valid": [0.3, None]}]
    run = written(tmp_path, lines)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "epo')  # being written
    found = live_curves(run)
    assert (found.steps, found.loss) == ([1, 2], [1.0, 0.5])
    assert (found.epochs, found.valid, found.silos, found.metric) == ([2], [0.4], [[0.3], [None]], "accuracy")
    assert live_curves(run, "f1").valid == [None]


def test_curves_of_seeds_are_those_of_the_last(tmp_path: Path) -> None:
    for seed in (2, 10):
        (tmp_path / f"seed-{seed}").mkdir()
        written(tmp_path / f"seed-{seed}", [{"step": 1, "epoch": 1, "loss": seed}])
    assert live_curves(tmp_path).loss == [10.0] and "seed 10" in live_curves(tmp_path).note


def test_a_history_that_is_mostly_something_else_is_damaged(tmp_path: Path) -> None:
    written(tmp_path, [1, [2], {"step": 1, "loss": 0.5}, {"step": True, "loss": 1}, {"step": 2, "loss": 1e400}])
    with pytest.raises(IsthmusError, match="2 of its 5 lines are no tables"):
        live_curves(tmp_path)
    assert live_curves(tmp_path / "nothing").steps == []
