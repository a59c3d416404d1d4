"""The report of a run: one self-contained page with results, bytes, epsilon and the disclosure sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from isthmus import methods
from isthmus.protect.base import UNPROTECTED
from isthmus.run import plots
from isthmus.run.disclosure import (
    Flow,
    Paragraph,
    Seen,
    disclosure,
    in_short,
    is_merged,
    members,
    protection,
    read_flows,
)
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.run.plots import bytes_text, gain_text, metric_label, score_text, spread_text


def write_report(folder: RunFolder, alone: RunFolder | None = None) -> Path:
    """Write ``report.html`` into the run folder; gains are over ``alone``, a run of each silo by itself."""
    why_not = _differs(folder, alone) if alone else ""
    base = None if why_not else alone
    flows = read_flows(folder)
    name = str(_fact(folder, "method", "run"))
    body = [
        _header(folder, name),
        _notes(folder, why_not),
        _tiles(folder, base, flows),
        _results(folder, base),
        _curves(folder),
        _traffic(folder, flows),
        _privacy(folder, flows),
        _sheet(disclosure(folder), len(members(folder))),
        _settings(folder),
    ]
    path = folder.path / "report.html"
    write_atomic(path, page(f"{name} on {data_name(folder)}", "\n".join(body)).encode())
    return path


class Cell(NamedTuple):
    """Text of a table cell; ``hint`` shows on hover, ``tone`` is ``good`` or ``bad``."""

    text: str
    hint: str = ""
    tone: str = ""


def page(title: str, body: str) -> str:
    """A whole page around a body of markup."""
    template = resources.files("isthmus.run").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body=body)


Line = Sequence[str | Cell]


def table(head: Sequence[str], rows: Sequence[Line], note: str = "", left: int = 1, total: Line = ()) -> str:
    """A table; the first ``left`` columns are text, the others numbers; all text is escaped."""

    def line(cells: Line, tag: str, kind: str = "") -> str:
        out = []
        for place, cell in enumerate(cells):
            text, hint, tone = cell if isinstance(cell, Cell) else Cell(cell)
            names = " ".join(filter(None, ["l" if place < left else "", tone]))
            extra = (f' class="{names}"' if names else "") + (f' title="{escape(hint)}"' if hint else "")
            out.append(f"<{tag}{extra}>{escape(text)}</{tag}>")
        return f"<tr{kind}>{''.join(out)}</tr>"

    body = "".join(line(row, "td") for row in rows) + (line(total, "td", ' class="sum"') if total else "")
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
    return f'<div class="scroll"><table>{caption}{top}<tbody>{body}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    """A drawing with what it shows."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Key figures: (value, what it is)."""
    each = (f"<b>{escape(value)}</b><span>{escape(what)}</span>" for value, what in facts)
    return '<div class="tiles">' + "".join(f'<div class="tile">{tile}</div>' for tile in each) + "</div>"


def score(folder: RunFolder, split: str, metric: str, silo: str = "") -> float | None:
    """A final score, of the federation or of a silo; split ``test_std`` gives its deviation over seeds."""
    scores = folder.metrics.get(split) or {}
    scores = (scores.get("silos") or {}).get(silo) or {} if silo else scores
    value = scores.get(metric)
    return None if value is None else float(value)


def silo_names(folder: RunFolder) -> list[str]:
    """Every silo that the final scores or sizes name, in their order, which is also that of the curves."""
    parts = [(folder.metrics.get(split) or {}).get("silos") or {} for split in ("valid", "test")]
    parts.append(_fact(folder, "silo_nodes", {}))
    return list(dict.fromkeys(name for part in parts for name in part))


def primary(folder: RunFolder) -> str:
    """The metric that the run is judged by."""
    return str(folder.metrics.get("metric") or next(iter(folder.metrics.get("test") or {"score": None})))


def epsilons(folder: RunFolder) -> dict[str, float]:
    """The privacy loss of each kind in the ledger; infinite where a message left without a bound."""
    flows, known = read_flows(folder), _fact(folder, "epsilon", {})
    spent = {f.kind: float("inf" if known.get(f.kind) is None else known[f.kind]) for f in flows}
    return spent | {f.kind: float("inf") for f in flows if f.event == str(UNPROTECTED)}


def epsilon_text(value: float) -> str:
    """An epsilon for humans."""
    return "∞" if value == float("inf") else f"{value:.3g}"


@dataclass(frozen=True)
class Curves:
    """What ``metrics.jsonl`` tells: means over seeds, at the steps and epochs that all seeds reached."""

    steps: list[int]
    loss: list[float | None]
    epochs: list[int]
    valid: list[float | None]
    silos: list[list[float | None]]


def curves(folder: RunFolder) -> Curves:
    """The learning curves of a run, or their means over its seeds."""
    runs = [part.history for part in members(folder) if (part.path / "metrics.jsonl").is_file()]
    loss = [{line["step"]: line.get("loss") for line in run if "valid" not in line} for run in runs]
    seen = [{line["epoch"]: line for line in run if "valid" in line} for run in runs]
    steps = sorted(set.intersection(*map(set, loss))) if loss else []
    epochs = sorted(set.intersection(*map(set, seen))) if seen else []
    width = max((len(line.get("silo_valid", ())) for run in seen for line in run.values()), default=0)
    metric = primary(folder)
    return Curves(
        steps,
        [_mean([run[step] for run in loss]) for step in steps],
        epochs,
        [_mean([(run[epoch]["valid"] or {}).get(metric) for run in seen]) for epoch in epochs],
        [[_mean([_at(run[e].get("silo_valid"), i) for run in seen]) for e in epochs] for i in range(width)],
    )


def _at(values: Sequence[float | None] | None, place: int) -> float | None:
    return values[place] if values and place < len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _fact(folder: RunFolder, key: str, default: Any) -> Any:
    """A value of ``metrics.json``: the run's, its first seed's, or the default."""
    for source in (folder.metrics, members(folder)[0].metrics):
        if source.get(key) is not None:
            return source[key]
    return default


def _header(folder: RunFolder, name: str) -> str:
    """What ran, in one sentence, and when and where."""
    config, data, model = folder.config, folder.config.get("data", {}), folder.config.get("model", {})
    shape = {"layers": "{} layers", "hidden": "{} wide"}
    shapes = ", ".join(text.format(model[key]) for key, text in shape.items() if key in model)
    seeds = folder.metrics.get("seeds") or [_fact(folder, "seed", config.get("seed", 0))]
    parts = _count(int(data.get("silos") or _fact(folder, "silos", 0)), "silo")
    split = data.get("split", "as given")
    how = "merged into one" if is_merged(folder) else split if split == "as given" else f"split by {split}"
    text = (
        f"{name} trained {_fact(folder, 'model', 'a model')}{f' ({shapes})' if shapes else ''} on "
        f"{data_name(folder)}, {parts} {how}, for {_count(int(_fact(folder, 'epochs', 0)), 'epoch')} "
        f"with {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}."
    )
    about = f" {name}: {methods.get(name).summary}." if name in methods.names() else ""
    environment = _fact(folder, "environment", {})
    written = datetime.fromtimestamp((folder.path / "metrics.json").stat().st_mtime, UTC)
    when = environment.get("finished") or f"{written:%Y-%m-%d %H:%M} UTC"
    device = environment.get("device") or config.get("system", {}).get("device", "–")
    where = f"Finished {when} on {_count(int(_fact(folder, 'hosts', 1)), 'host')}, device {device}."
    title = f"<h1>{escape(f'{name} on {data_name(folder)}')}</h1>"
    return f'{title}<p class="lead">{escape(text + about)}</p><p class="small">{escape(where)}</p>'


def data_name(folder: RunFolder) -> str:
    """The data set's name; of a folder of parts only the last part of its path."""
    return Path(str(_fact(folder, "data", folder.config.get("data", {}).get("name", "data")))).name


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _notes(folder: RunFolder, why_not: str) -> str:
    """What the reader must know before the numbers."""
    notes = [str(note) for note in _fact(folder, "notes", [])]
    if is_merged(folder):
        notes.insert(0, "One party held all data: a simulation, as an upper bound for comparison.")
    elif int(_fact(folder, "hosts", 1)) == 1:
        notes.insert(0, "All silos ran in one process: a simulation. The ledger counts what would cross.")
    notes += [why_not] if why_not else []
    points = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="box"><ul>{points}</ul></div>' if notes else ""


def _differs(folder: RunFolder, alone: RunFolder) -> str:
    """Why a run of each silo alone cannot be compared with this one; empty when it can."""
    for key in ("name", "silos", "split", "seed"):
        here, there = (run.config.get("data", {}).get(key) for run in (folder, alone))
        if here != there:
            return f"No gain over training alone is shown: that run has data.{key} {there}, this one {here}."
    if primary(folder) != primary(alone):
        return "No gain over training alone is shown: that run is judged by another metric."
    if silo_names(folder) != silo_names(alone):
        return "No gain over training alone is shown: that run scores other silos."
    return ""


def _tiles(folder: RunFolder, alone: RunFolder | None, flows: Sequence[Flow]) -> str:
    """The key figures."""
    metric, total = primary(folder), sum(flow.bytes for flow in flows)
    best, seeds = score(folder, "test", metric), len(members(folder))
    several = f" in {seeds} seeds" if seeds > 1 else ""
    spread = score(folder, "test_std", metric)
    deviation = "" if spread is None else f", ± {score_text(metric, spread)} over seeds"
    facts = [(score_text(metric, best), f"test {metric_label(metric)}{deviation}")]
    if alone:
        facts.append((gain_text(metric, best, score(alone, "test", metric)), "points over each silo alone"))
    if is_merged(folder):
        facts.append(("all data", "in one place"))
    else:
        worst = max(epsilons(folder).values(), default=0.0)
        each = bytes_text(total / steps_of(folder))
        facts.append((bytes_text(total), f"crossed{several}, {each} per step"))
        facts.append((f"ε = {epsilon_text(worst)}", "worst of all kinds" if flows else "nothing crossed"))
    facts.append((duration(_fact(folder, "seconds", None)), f"of training{' per seed' if several else ''}"))
    return tiles(facts) + ("" if is_merged(folder) else _in_short(flows))


def _in_short(flows: Sequence[Flow]) -> str:
    crossed, not_crossed = (escape("; ".join(names) or "nothing") for names in in_short(flows))
    return f"<p><b>Crossed:</b> {crossed}.<br><b>Did not cross:</b> {not_crossed}.</p>"


def steps_of(folder: RunFolder) -> int:
    """Steps of the run, over all its seeds; at least 1."""
    return max(sum(int(part.metrics.get("steps") or 0) for part in members(folder)), 1)


def duration(seconds: float | None) -> str:
    """Seconds for humans."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _with_deviation(folder: RunFolder, split: str, metric: str, silo: str = "") -> str:
    """A score, with its deviation where there are several seeds."""
    value, spread = score(folder, split, metric, silo), score(folder, f"{split}_std", metric, silo)
    return spread_text(metric, value, spread)


def _results(folder: RunFolder, alone: RunFolder | None) -> str:
    """Scores of the federation by metric, then of each silo."""
    head = ["Metric", "Validation", "Test", *(["Alone", "Gain"] if alone else [])]
    rows: list[Line] = [
        [metric_label(metric), *_scores(folder, alone, metric)]
        for metric in folder.metrics.get("test") or {}
        if metric != "silos"
    ]
    note = "Over the nodes of all silos together." if folder.metrics.get("pooled") else ""
    note = note or "Means over silos, weighted by their number of scored nodes."
    note += " Alone: each silo trained by itself. Gains are in percentage points." if alone else ""
    note += " ± is the deviation over seeds." if folder.metrics.get("test_std") else ""
    return f"<h2>Results</h2>{table(head, rows, note)}{_by_silo(folder, alone)}"


def _by_silo(folder: RunFolder, alone: RunFolder | None) -> str:
    """Size and scores of each silo."""
    metric, silos, sizes = primary(folder), silo_names(folder), _fact(folder, "silo_nodes", {})
    if not silos:
        return ""
    head = ["Silo", "Nodes", "Training", "Halo", "Validation", "Test", *(["Alone", "Gain"] if alone else [])]
    rows: list[Line] = []
    for silo in silos:
        held = (sizes.get(silo, {}).get(key) for key in ("nodes", "train", "halo"))
        counts = ["–" if count is None else f"{count:,}" for count in held]
        rows.append([silo, *counts, *_scores(folder, alone, metric, silo)])
    note = f"Scores are {metric_label(metric)}. Halo: nodes of other silos at the far end of its edges."
    tests = {silo: score(folder, "test", metric, silo) for silo in silos}
    base = {silo: score(alone, "test", metric, silo) for silo in silos} if alone else None
    gain = ", and its gain over training alone in percentage points" if alone else ""
    drawn = figure(plots.silo_bars(tests, base, metric), f"Test {metric_label(metric)} of each silo{gain}.")
    return f"<h3>Silo by silo</h3>{table(head, rows, note)}{drawn if len(silos) > 1 else ''}"


def _scores(folder: RunFolder, alone: RunFolder | None, metric: str, silo: str = "") -> list[str | Cell]:
    """Validation and test score; with a run of each silo alone also that one's, and the gain."""
    own: list[str | Cell] = [_with_deviation(folder, split, metric, silo) for split in ("valid", "test")]
    if alone is None:
        return own
    text = gain_text(metric, score(folder, "test", metric, silo), score(alone, "test", metric, silo))
    tone = {"+": "good", "−": "bad"}.get(text[0], "") if text.strip("+−0.") else ""
    return [*own, _with_deviation(alone, "test", metric, silo), Cell(text, tone=tone)]


def _curves(folder: RunFolder) -> str:
    """Loss and validation over time."""
    found, metric = curves(folder), primary(folder)
    mean = f" Mean of {len(members(folder))} seeds." if len(members(folder)) > 1 else ""
    parts = ["<h2>Training</h2>"]
    if found.steps:
        drawn = plots.loss_curve(found.steps, found.loss)
        parts.append(figure(drawn, f"Training loss of the federation by step.{mean}"))
    if found.epochs:
        named = dict(zip(silo_names(folder), found.silos, strict=False))
        best = [int(epoch) for epoch in _fact(folder, "best_epoch", [])]
        mark = best[0] if len(set(best)) == 1 and not mean else 0
        svg = plots.valid_curve(found.epochs, found.valid, named, metric, mark)
        thin = " Thin lines are single silos." if len(named) > 1 else ""
        parts.append(figure(svg, f"Validation {metric_label(metric)} by epoch.{thin}{mean}"))
    return "\n".join(parts) if len(parts) > 1 else ""


def _traffic(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """Bytes by kind, per step, and from whom to whom; with several hosts also what the transport carried."""
    if not flows:
        return "<h2>What crossed</h2><p>Nothing: the ledger is empty.</p>"
    steps, carried = steps_of(folder), _carried(folder)
    sizes: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    for f in flows:
        sizes[f.kind] = sizes.get(f.kind, 0) + f.bytes
        pairs[f.sender, f.receiver] = pairs.get((f.sender, f.receiver), 0) + f.bytes
    sizes = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    head = ["Kind", "Messages", "Rows", "Before training", "Per step", "Bytes"] + ["Carried"] * bool(carried)
    rows = [_amounts(kind, [f for f in flows if f.kind == kind], steps, carried) for kind in sizes]
    shown = table(head, rows, _traffic_note(folder), total=_amounts("all", flows, steps, carried))
    kinds = figure(plots.kind_bars(sizes), "Bytes by kind of message.")
    parties = figure(plots.heat_map(pairs), "Bytes from each party (row) to each party (column).")
    return f"<h2>What crossed</h2>{shown}{kinds}{parties}"


def _traffic_note(folder: RunFolder) -> str:
    seeds = len(members(folder))
    note = f"Bytes count once for each receiving party; per step: all bytes over {steps_of(folder):,} steps."
    note += f" Sums over {seeds} seeds." if seeds > 1 else ""
    note += " Carried: what really moved between hosts." if _carried(folder) else ""
    merged = " Here the only silo and the server were one place, so none of this left it."
    return note + merged * is_merged(folder)


def _carried(folder: RunFolder) -> dict[str, int]:
    """Bytes of each kind that the transport moved between hosts, over all seeds."""
    total: dict[str, int] = {}
    for part in members(folder):
        for kind, size in (part.metrics.get("transport") or {}).items():
            total[kind] = total.get(kind, 0) + int(size)
    return total


def _amounts(kind: str, flows: Sequence[Flow], steps: int, carried: Mapping[str, int]) -> list[str | Cell]:
    """One line of the table of bytes."""
    total, setup = sum(f.bytes for f in flows), sum(f.setup for f in flows)
    counts = [f"{sum(f.messages for f in flows):,}", f"{sum(f.rows for f in flows):,}"]
    moved = sum(carried.values()) if kind == "all" else carried.get(kind, 0)
    line: list[str | Cell] = [kind, *counts, _size(setup), bytes_text(total / steps), _size(total)]
    return [*line, _size(moved)] if carried else line


def _size(size: int) -> Cell:
    return Cell(bytes_text(size), f"{size:,} bytes")


def _privacy(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """Epsilon by kind."""
    rows = []
    for kind, value in epsilons(folder).items():
        events = sorted({f.event for f in flows if f.kind == kind})
        rows.append([kind, " ".join(map(protection, events)), epsilon_text(value)])
    if is_merged(folder):
        return "<h2>Privacy loss</h2><p>One party held everything, so epsilon is infinite.</p>"
    if not rows:
        return "<h2>Privacy loss</h2><p>Nothing crossed, so there is no loss: epsilon is 0.</p>"
    note = (
        "Epsilon bounds how far a release can move the odds of any conclusion about one protected unit. "
        "∞: there is no bound."
    )
    return "<h2>Privacy loss</h2>" + table(["Kind", "Protection", "ε"], rows, note, left=2)


def _sheet(paragraphs: Sequence[Paragraph], seeds: int) -> str:
    """The disclosure sheet."""
    many = f" Amounts are sums over {seeds} seeds." if seeds > 1 else ""
    parts = [f"<h2>Disclosure sheet</h2><p>What each party saw, from the ledger alone.{many}</p>"]
    for part in paragraphs:
        parts.append(f"<h3>{escape(part.title)}</h3><p>{escape(part.lead)}</p>")
        parts += ["<dl>", *map(_seen, part.seen), "</dl>"] if part.seen else []
        points = "".join(f"<li>{escape(point)}</li>" for point in part.points)
        parts.append(f"<ul>{points}</ul>" if points else "")
    return "\n".join(parts)


def _seen(seen: Seen) -> str:
    amounts = f"From {seen.sender}: {seen.amounts}. {seen.protection}"
    text = f'<dd>{escape(seen.meaning)}</dd><dd class="small">{escape(amounts)}</dd>'
    return f'<div class="seen"><dt>{escape(seen.kind.capitalize())}</dt>{text}</div>'


def _settings(folder: RunFolder) -> str:
    """The environment, and the configuration that repeats the run."""
    environment = [[str(key), str(value)] for key, value in _fact(folder, "environment", {}).items()]
    config = (folder.path / "config.toml").read_text(encoding="utf-8")
    place = "<h2>Where it ran</h2>" + table(["", ""], environment, left=2) if environment else ""
    full = f"<details><summary>config.toml</summary><pre>{escape(config)}</pre></details>"
    return f"{place}<h2>Configuration</h2>{full}"
