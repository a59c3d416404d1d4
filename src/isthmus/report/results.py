"""The report's sections on scores: of the federation, of each silo, and over time."""

from __future__ import annotations

from isthmus.core.kinds import SCORES
from isthmus.report import plots
from isthmus.report.page import Cell, CellRow, figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import curve_names, curves, fact, final_score, members, primary, silo_names
from isthmus.runs.text import bytes_text, gain_text, metric_label, score_text, spread_text

_DRAWN = 60  # silos that a drawing has room for


def results(folder: RunFolder, alone: RunFolder | None) -> str:
    """The section of final scores: of the federation by metric, then of each silo."""
    head = ["Metric", "Validation", "Test", *(["Alone", "Gain"] if alone else [])]
    rows: list[CellRow] = [
        [metric_label(metric), *_scores(folder, alone, metric)]
        for metric in folder.metrics.get("test") or {}
        if metric != "silos"
    ]
    pooled = folder.metrics.get("test_pooled") or {}
    rows += [[f"{metric_label(metric)}, pooled", *_scores(folder, alone, metric, kind="_pooled")] for metric in pooled]
    alike = folder.config.get("train", {}).get("average") == "silos"
    note = f"Means over silos, {'all alike' if alike else 'weighted by how many nodes or edges each scored'}."
    note += " Pooled: over the nodes or edges of all silos together." if pooled else ""
    note += " Alone: each silo trained by itself. Gains are in percentage points." if alone else ""
    note += " ± is the deviation over seeds." if folder.metrics.get("test_std") else ""
    return f"<h2>How good the model is</h2>{table(head, rows, note)}{_ways(folder)}{_by_silo(folder, alone)}"


def _ways(folder: RunFolder) -> str:
    """The table of all ways in which the run was scored; empty where there is one alone."""
    scored, metric = folder.metrics.get("scored") or {}, primary(folder)
    if len(scored) < 2:
        return ""
    rows: list[CellRow] = []
    for how, way in scored.items():
        splits = ("valid", "test", "test_std", "test_pooled")
        valid, test, deviation, pooled = ((way.get(split) or {}).get(metric) for split in splits)
        epochs = sorted(set(way["best_epoch"]))
        chosen = str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        texts = [
            score_text(metric, valid),
            spread_text(metric, test, deviation),
            score_text(metric, pooled),
        ]
        rows.append([SCORES[how], *texts, chosen, f"{sum(way['seeds_scored']):,}", bytes_text(way["bytes"])])
    head = ["Scored", "Validation", "Test", "Test, pooled", "Epoch", "Nodes or edges", "Bytes of one test"]
    note = (
        f"{metric_label(metric)}. Each way selects its own epoch by its own validation; all else on this page is of "
        "the first."
    )
    return f"<h3>Scored in several ways</h3>{table(head, rows, note)}"


def _by_silo(folder: RunFolder, alone: RunFolder | None) -> str:
    """The table of each silo's sizes and scores, and their figure; empty where silos have no scores."""
    metric, silos, sizes = primary(folder), silo_names(folder), fact(folder, "silo_nodes", {})
    if not silos:
        return ""
    tables = any(sizes.get(silo, {}).get("table_bytes") for silo in silos)
    head = ["Silo", "Nodes", "Training", "Halo", *(["Tables"] if tables else []), "Validation", "Test"]
    head += ["Alone", "Gain"] if alone else []
    rows: list[CellRow] = []
    for silo in silos:
        held = (sizes.get(silo, {}).get(key) for key in ("nodes", "train", "halo"))
        counts = ["–" if count is None else f"{count:,}" for count in held]
        counts += [bytes_text(sizes.get(silo, {}).get("table_bytes", 0))] if tables else []
        rows.append([silo, *counts, *_scores(folder, alone, metric, silo)])
    note = f"Scores are {metric_label(metric)}. Training: nodes or edges that the silo trains on. "
    note += "Halo: nodes of other silos at the far end of its edges."
    note += " Tables: memory for rows that are kept between steps." if tables else ""
    tests = {silo: final_score(folder, "test", metric, silo) for silo in silos}
    base = {silo: final_score(alone, "test", metric, silo) for silo in silos} if alone else None
    gain = ", and its gain over training alone in percentage points" if alone else ""
    shown = _outermost(tests)
    which = "each silo" if len(shown) == len(tests) else f"the {_DRAWN // 2} worst and the {_DRAWN // 2} best silos"
    drawn = figure(plots.silo_bars(shown, base, metric), f"Test {metric_label(metric)} of {which}{gain}.")
    return f"<h3>Silo by silo</h3>{table(head, rows, note)}{drawn if len(silos) > 1 else ''}"


def _outermost(tests: dict[str, float | None]) -> dict[str, float | None]:
    """All silos' scores in their order; of very many silos, those of the worst and the best."""
    known = sorted((silo for silo, score in tests.items() if score is not None), key=lambda silo: tests[silo] or 0.0)
    if len(tests) <= _DRAWN:
        return tests
    chosen = {*known[: _DRAWN // 2], *known[-_DRAWN // 2 :]}
    return {silo: score for silo, score in tests.items() if silo in chosen}


def _scores(
    folder: RunFolder, alone: RunFolder | None, metric: str, silo: str = "", kind: str = ""
) -> list[str | Cell]:
    """The cells of validation and test score; with ``alone`` also its test score, and the gain over it.

    ``silo`` empty: of the federation. ``kind`` is a suffix such as ``_pooled``.
    """
    valid, test = f"valid{kind}", f"test{kind}"
    own: list[str | Cell] = [_with_deviation(folder, split, metric, silo) for split in (valid, test)]
    if alone is None:
        return own
    text = gain_text(metric, final_score(folder, test, metric, silo), final_score(alone, test, metric, silo))
    tone = {"+": "good", "−": "bad"}.get(text[0], "") if text.strip("+−0.") else ""
    return [*own, _with_deviation(alone, test, metric, silo), Cell(text, tone=tone)]


def _with_deviation(folder: RunFolder, split: str, metric: str, silo: str = "") -> str:
    """The text of a score, with its deviation where there are several seeds."""
    value, spread = final_score(folder, split, metric, silo), final_score(folder, f"{split}_std", metric, silo)
    return spread_text(metric, value, spread)


def training(folder: RunFolder) -> str:
    """The section of learning curves: training loss by step and validation score by epoch."""
    found, metric = curves(folder), primary(folder)
    mean = f" Mean of {len(members(folder))} seeds." if len(members(folder)) > 1 else ""
    parts = ["<h2>How training went</h2>"]
    if found.steps:
        drawn = plots.loss_curve(found.steps, found.loss)
        parts.append(figure(drawn, f"Training loss of the federation by step.{mean}"))
    if found.epochs:
        named = dict(zip(curve_names(folder), found.silos, strict=False))
        best = [int(epoch) for epoch in fact(folder, "best_epoch", [])]
        mark = best[0] if len(set(best)) == 1 and not mean else 0
        svg = plots.valid_curve(found.epochs, found.valid, named, metric, mark)
        thin = " Thin lines are single silos." if len(named) > 1 else ""
        parts.append(figure(svg, f"Validation {metric_label(metric)} by epoch.{thin}{mean}"))
    drift = fact(folder, "drift", None)
    if drift is not None:
        parts.append(
            f"<p>Rows that silos keep of each other's nodes moved by {100 * drift:.0f} % of their size within a round, "
            "on average; <code>silo_drift</code> in metrics.jsonl has every silo.</p>"
        )
    return "\n".join(parts) if len(parts) > 1 else ""
