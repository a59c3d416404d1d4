"""The report of a run: one self-contained page with results, bytes, epsilon and the disclosure sheet."""

from __future__ import annotations

from collections.abc import Sequence
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
from isthmus.run.disclosure import Flow, Paragraph, Seen, disclosure, is_merged, members, protection, read_flows
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.run.plots import bytes_text, gain_text, list_names, metric_label, party_order, score_text


def write_report(folder: RunFolder, alone: RunFolder | None = None) -> Path:
    """Write ``report.html`` into the run folder; ``alone`` is a run of each silo by itself, to show gains over."""
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
    write_atomic(path, page(f"{name} on {_fact(folder, 'data', 'data')}", "\n".join(body)).encode())
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


def table(head: Sequence[str], rows: Sequence[Sequence[str | Cell]], left: int = 1, last: bool = False, note: str = "") -> str:
    """A table; the first ``left`` columns are text, the others numbers; with ``last`` the last row is the sum."""

    def line(cells: Sequence[str | Cell], tag: str, kind: str = "") -> str:
        out = []
        for place, cell in enumerate(cells):
            text, hint, tone = cell if isinstance(cell, Cell) else Cell(cell)
            names = " ".join(filter(None, ["l" if place < left else "", tone]))
            extra = (f' class="{names}"' if names else "") + (f' title="{escape(hint)}"' if hint else "")
            out.append(f"<{tag}{extra}>{escape(text)}</{tag}>")
        return f"<tr{kind}>{''.join(out)}</tr>"

    body = [line(row, "td", ' class="sum"' if last and at == len(rows) - 1 else "") for at, row in enumerate(rows)]
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    inner = f"{caption}<thead>{line(head, 'th')}</thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll"><table>{inner}</table></div>'


def figure(svg: str, caption: str) -> str:
    """A drawing with what it shows."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Key figures: (value, what it is)."""
    each = (f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in facts)
    return f'<div class="tiles">{"".join(each)}</div>'


def score(folder: RunFolder, split: str, metric: str, silo: str = "") -> float | None:
    """A final score, of the federation or of a silo; ``split`` may be ``test_std`` for the deviation over seeds."""
    scores = folder.metrics.get(split) or {}
    scores = (scores.get("silos") or {}).get(silo) or {} if silo else scores
    value = scores.get(metric)
    return None if value is None else float(value)


def silo_names(folder: RunFolder) -> list[str]:
    """Every silo that the final scores or sizes name, in order."""
    parts = [(folder.metrics.get(split) or {}).get("silos") or {} for split in ("valid", "test")]
    return sorted({name for part in (*parts, _fact(folder, "silo_nodes", {})) for name in part}, key=party_order)


def primary(folder: RunFolder) -> str:
    """The metric that the run is judged by."""
    return str(folder.metrics.get("metric") or next(iter(folder.metrics.get("test") or {"score": None})))


def epsilons(folder: RunFolder) -> dict[str, float]:
    """The privacy loss of each kind in the ledger; infinite where a message left unprotected or nobody accounted."""
    flows, known = read_flows(folder), _fact(folder, "epsilon", {})
    spent = {kind: float(known.get(kind, "inf")) for kind in dict.fromkeys(f.kind for f in flows)}
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
    metric, width = primary(folder), max((len(e.get("silo_valid", ())) for s in seen for e in s.values()), default=0)
    return Curves(
        steps,
        [_mean([run[step] for run in loss]) for step in steps],
        epochs,
        [_mean([(run[epoch]["valid"] or {}).get(metric) for run in seen]) for epoch in epochs],
        [[_mean([run[e]["silo_valid"][i] for run in seen]) for e in epochs] for i in range(width)],
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _fact(folder: RunFolder, key: str, default: Any) -> Any:
    """A value of ``metrics.json``: the run's, its first seed's, or the default."""
    for source in (folder.metrics, members(folder)[0].metrics):
        if source.get(key) is not None:
            return source[key]
    return default


_SHAPE = {"layers": "{} layers", "hidden": "{} wide"}


def _header(folder: RunFolder, name: str) -> str:
    """What ran, in one sentence, and when and where."""
    config, data, model = folder.config, folder.config.get("data", {}), folder.config.get("model", {})
    about = f" ({methods.get(name).summary})" if name in methods.names() else ""
    shape = ", ".join(text.format(model[key]) for key, text in _SHAPE.items() if key in model)
    silos, epochs = int(_fact(folder, "silos", data.get("silos", 0))), int(_fact(folder, "epochs", 0))
    seeds = folder.metrics.get("seeds") or [_fact(folder, "seed", config.get("seed", 0))]
    text = (
        f"{name}{about} trained {_fact(folder, 'model', 'a model')}{f' ({shape})' if shape else ''} on "
        f"{_fact(folder, 'data', 'data')}, split between {_count(silos, 'silo')} by {data.get('split', '–')}, for "
        f"{_count(epochs, 'epoch')} with seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}."
    )
    environment = _fact(folder, "environment", {})
    written = datetime.fromtimestamp((folder.path / "metrics.json").stat().st_mtime, UTC)
    when = environment.get("finished") or f"{written:%Y-%m-%d %H:%M} UTC"
    device = environment.get("device") or config.get("system", {}).get("device", "–")
    where = f"Finished {when} on {_count(int(_fact(folder, 'hosts', 1)), 'host')}, device {device}."
    title = f"{name} on {_fact(folder, 'data', 'data')}"
    return f'<h1>{escape(title)}</h1><p class="lead">{escape(text)}</p><p class="small">{escape(where)}</p>'


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _notes(folder: RunFolder, why_not: str) -> str:
    """What the reader must know before the numbers."""
    notes = [str(note) for note in _fact(folder, "notes", [])]
    if is_merged(folder):
        notes.insert(0, "One party held all data: a simulation, as an upper bound for comparison.")
    elif int(_fact(folder, "hosts", 1)) == 1:
        notes.insert(0, "All silos ran in one process: a simulation. The ledger counts what would have crossed.")
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
    best = score(folder, "test", metric)
    facts = [(_with_deviation(folder, "test", metric), f"test {metric_label(metric)}")]
    if alone:
        facts.append((gain_text(metric, best, score(alone, "test", metric)), "points over each silo alone"))
    facts.append((bytes_text(total), f"crossed, {bytes_text(total / steps_of(folder))} per step"))
    worst = max(epsilons(folder).values(), default=0.0)
    facts.append((f"ε = {epsilon_text(worst)}", "worst of all kinds" if worst else "nothing crossed"))
    facts.append((duration(_fact(folder, "seconds", None)), "of training" + _per_seed(folder)))
    return tiles(facts)


def steps_of(folder: RunFolder) -> int:
    """Steps of the run, over all its seeds; at least 1."""
    return max(sum(int(part.metrics.get("steps") or 0) for part in members(folder)), 1)


def _per_seed(folder: RunFolder) -> str:
    return ", a seed" if len(members(folder)) > 1 else ""


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
    text, spread = score_text(metric, score(folder, split, metric, silo)), score(folder, f"{split}_std", metric, silo)
    return text if spread is None else f"{text.removesuffix(' %')} ± {score_text(metric, spread)}"


def _results(folder: RunFolder, alone: RunFolder | None) -> str:
    """Scores of the federation by metric, then of each silo."""
    metric = primary(folder)
    names = [m for m in (folder.metrics.get("test") or {}) if m != "silos"]
    head = ["Metric", "Validation", "Test", *(["Alone", "Gain"] if alone else [])]
    rows = [
        [metric_label(m), *(_with_deviation(folder, split, m) for split in ("valid", "test")), *_gain(folder, alone, m)]
        for m in names
    ]
    deviation = " ± is the deviation over seeds." if folder.metrics.get("test_std") else ""
    gains = " Gains between shares are in percentage points." if alone else ""
    note = f"Means over silos, weighted by scored nodes, unless the run pooled its scores.{gains}{deviation}"
    parts = ["<h2>Results</h2>", table(head, rows, note=note), "<h3>Silo by silo</h3>"]
    sizes = _fact(folder, "silo_nodes", {})
    head = ["Silo", "Nodes", "Training", "Halo", "Validation", "Test", *(["Alone", "Gain"] if alone else [])]
    lines = []
    for silo in silo_names(folder):
        held = [_number(sizes.get(silo, {}).get(key)) for key in ("nodes", "train", "halo")]
        scores = [_with_deviation(folder, split, metric, silo) for split in ("valid", "test")]
        lines.append([silo, *held, *scores, *_gain(folder, alone, metric, silo)])
    note = f"Scores are {metric_label(metric)}. Halo: nodes of other silos at the far end of its edges."
    parts.append(table(head, lines, note=note))
    tests = {silo: score(folder, "test", metric, silo) for silo in silo_names(folder)}
    base = {silo: score(alone, "test", metric, silo) for silo in tests} if alone else None
    caption = f"Test {metric_label(metric)} of each silo{', and its gain over training alone' if alone else ''}."
    return "\n".join([*parts, figure(plots.silo_bars(tests, base, metric), caption) if tests else ""])


def _gain(folder: RunFolder, alone: RunFolder | None, metric: str, silo: str = "") -> list[str | Cell]:
    """The score of training alone, and the difference to it."""
    if alone is None:
        return []
    text = gain_text(metric, score(folder, "test", metric, silo), score(alone, "test", metric, silo))
    tone = {"+": "good", "−": "bad"}.get(text[0], "") if text.strip("+−0.") else ""
    return [_with_deviation(alone, "test", metric, silo), Cell(text, tone=tone)]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _curves(folder: RunFolder) -> str:
    """Loss and validation over time."""
    found, metric = curves(folder), primary(folder)
    mean = f" Mean of {len(members(folder))} seeds." if len(members(folder)) > 1 else ""
    parts = ["<h2>Training</h2>"]
    if found.steps:
        parts.append(figure(plots.loss_curve(found.steps, found.loss), f"Training loss of the federation by step.{mean}"))
    if found.epochs:
        named = dict(zip(silo_names(folder), found.silos, strict=False))
        best = [int(epoch) for epoch in _fact(folder, "best_epoch", [])]
        mark = best[0] if len(set(best)) == 1 and not mean else 0
        svg = plots.valid_curve(found.epochs, found.valid, named, metric, mark)
        thin = " Thin lines are single silos." if len(named) > 1 else ""
        parts.append(figure(svg, f"Validation {metric_label(metric)} by epoch.{thin}{mean}"))
    return "\n".join(parts if len(parts) > 1 else [*parts, "<p>No curve was recorded.</p>"])


def _traffic(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """Bytes by kind, per step, and from whom to whom; where several hosts took part also what they carried."""
    carried, steps = _fact(folder, "transport", {}), steps_of(folder)
    kinds = sorted({f.kind for f in flows}, key=lambda kind: -sum(f.bytes for f in flows if f.kind == kind))
    if not kinds:
        return "<h2>What crossed</h2><p>Nothing: the ledger is empty.</p>"
    head = ["Kind", "Messages", "Rows", "Before training", "Per step", "Bytes", *(["Carried"] if carried else [])]
    rows = [
        [kind, *_amounts([f for f in flows if f.kind == kind], steps), *([_size(carried.get(kind, 0))] if carried else [])]
        for kind in kinds
    ]
    rows.append(["all", *_amounts(flows, steps), *([_size(sum(carried.values()))] if carried else [])])
    many = f" Sums over {len(members(folder))} seeds." if len(members(folder)) > 1 else ""
    note = f"Bytes count once for each receiving party; per step is all bytes over {steps:,} steps.{many}"
    note += " Carried: what the transport really moved between hosts." if carried else ""
    sizes = {kind: sum(f.bytes for f in flows if f.kind == kind) for kind in kinds}
    pairs: dict[tuple[str, str], int] = {}
    for f in flows:
        pairs[f.sender, f.receiver] = pairs.get((f.sender, f.receiver), 0) + f.bytes
    return "\n".join(
        [
            "<h2>What crossed</h2>",
            table(head, rows, last=True, note=note),
            figure(plots.kind_bars(sizes), "Bytes by kind of message."),
            figure(plots.heat_map(pairs), "Bytes from each party (row) to each party (column); darker is more."),
        ]
    )


def _amounts(flows: Sequence[Flow], steps: int) -> list[str | Cell]:
    total = sum(f.bytes for f in flows)
    counts = [f"{sum(f.messages for f in flows):,}", f"{sum(f.rows for f in flows):,}"]
    return [*counts, _size(sum(f.setup for f in flows)), bytes_text(total / steps), _size(total)]


def _size(size: int) -> Cell:
    return Cell(bytes_text(size), f"{size:,} bytes")


def _privacy(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """Epsilon by kind."""
    rows = []
    for kind, value in epsilons(folder).items():
        events = sorted({f.event for f in flows if f.kind == kind})
        rows.append([kind, " ".join(map(protection, events)), epsilon_text(value)])
    if not rows:
        return "<h2>Privacy loss</h2><p>Nothing crossed, so there is no loss: epsilon is 0.</p>"
    note = (
        "Epsilon bounds how much more likely any conclusion about one protected unit becomes through what was released. "
        "∞ means that there is no bound."
    )
    return "<h2>Privacy loss</h2>" + table(["Kind", "Protection", "ε"], rows, left=2, note=note)


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
    return f"{place}<h2>Configuration</h2><details><summary>config.toml</summary><pre>{escape(config)}</pre></details>"
