"""The report of a run: one self-contained page with a verdict, results, traffic, epsilon, and what each party saw."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from isthmus.audit.findings import attack_error, attack_text, read_audit
from isthmus.core.files import write_atomic
from isthmus.core.kinds import SCORES
from isthmus.protect.accounting.guarantee import headline
from isthmus.report.adversary import adversary
from isthmus.report.alerts import alerts
from isthmus.report.columns import columns
from isthmus.report.disclosure import disclosure, server_place, wire_words
from isthmus.report.first_screen import verdict, what_crossed
from isthmus.report.generated import generated
from isthmus.report.identities import wire_and_parties
from isthmus.report.network import over_network
from isthmus.report.page import box, page, table, tiles, with_contents
from isthmus.report.privacy import privacy
from isthmus.report.results import results, training
from isthmus.report.secret_messages import secret_messages
from isthmus.report.traffic import sheet, traffic
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import LinkConfig, link_of
from isthmus.runs.summary import (
    Flow,
    data_name,
    epsilon_of,
    fact,
    final_score,
    finished,
    guarantees,
    is_merged,
    members,
    of_party,
    primary,
    read_flows,
    run_label,
    silo_names,
    steps_of,
)
from isthmus.runs.text import bytes_text, count_text, duration, epsilon_text, gain_text, metric_label, score_text

_PARTY = (
    "These are the results of {0}. Traffic, and what parties saw, are of what {0} sent and received, epsilon of what "
    "it sent, scores by silo its own; means over silos and curves are those of the federation, told to every party."
)


def write_report(folder: RunFolder, alone: RunFolder | None = None, link: LinkConfig | None = None) -> Path:
    """Write ``report.html`` into the run folder and return its path.

    Gains are shown over ``alone``, a run in which each silo trained by itself. The time over a network is emulated for
    ``link`` (default: the link of the run's configuration).
    """
    why_not = _differs(folder, alone) if alone else ""
    base = None if why_not else alone
    flows = read_flows(folder)
    name, audit = run_label(folder), read_audit(folder)
    top = [
        _header(folder, name, verdict(folder, base, flows, audit)),
        _tiles(folder, base, flows),
        "" if is_merged(folder) else what_crossed(folder, flows, audit),
        _notes(folder, why_not),
    ]
    body = [
        results(folder, base),
        alerts(folder),
        columns(folder),
        training(folder),
        traffic(folder, flows),
        generated(folder),
        secret_messages(folder),
        over_network(folder, link or link_of(folder.config)),
        privacy(folder, flows),
        adversary(folder),
        sheet(disclosure(folder), len(members(folder)), f"{server_place(folder)} {wire_and_parties(folder)}".strip()),
        _settings(folder),
    ]
    path = folder.path / "report.html"
    write_atomic(path, page(f"{name} on {data_name(folder)}", with_contents("\n".join(top), "\n".join(body))).encode())
    return path


def _header(folder: RunFolder, name: str, judged: str) -> str:
    """The heading: the verdict, what ran, in one sentence, how it was scored, and when and where it ran."""
    summary, method = fact(folder, "method_summary", ""), str(fact(folder, "method", "run"))
    usual = "" if name == method else " without the parts that were swapped here"
    about = f" {method}{usual}: {summary}." if summary else ""
    when = finished(folder)
    device = fact(folder, "environment", {}).get("device") or folder.config.get("system", {}).get("device", "–")
    start = f"Finished {when:%Y-%m-%d %H:%M} UTC" if when else "Ran"
    where = f"{start} on {count_text(int(fact(folder, 'hosts', 1)), 'host')}, device {device}. {wire_words(folder)}"
    title = f"<h1>What {escape(name)} reached on {escape(data_name(folder))}, and what it gave away</h1>"
    lead = escape(_sentence(folder, name) + about + _scored(folder))
    return f'{title}<p class="lead">{escape(judged)}</p><p>{lead}</p><p class="small">{escape(where)}</p>'


def _sentence(folder: RunFolder, name: str) -> str:
    """One sentence with method, model, data, silos, epochs and seeds."""
    config, data, model = folder.config, folder.config.get("data", {}), folder.config.get("model", {})
    shape = {"layers": "{} layers", "hidden": "{} wide"}
    shapes = ", ".join(text.format(model[key]) for key, text in shape.items() if key in model)
    seeds = folder.metrics.get("seeds") or [fact(folder, "seed", config.get("seed", 0))]
    parts = count_text(int(data.get("silos") or fact(folder, "silos", 0)), "silo")
    split = data.get("split", "as given")
    how = "merged into one" if is_merged(folder) else split if split == "as given" else f"split by {split}"
    return (
        f"{name} trained {fact(folder, 'model', 'a model')}{f' ({shapes})' if shapes else ''} on "
        f"{data_name(folder)}, {parts} {how}, for {count_text(int(fact(folder, 'epochs', 0)), 'epoch')} "
        f"with {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}."
    )


def _scored(folder: RunFolder) -> str:
    """A sentence on how parameters were scored; empty for runs of older versions, which do not tell."""
    how = str(fact(folder, "score", ""))
    return f" Parameters were scored {SCORES[how]} (score = {how})." if how in SCORES else ""


def _notes(folder: RunFolder, why_not: str) -> str:
    """The box of what the reader must know before the numbers."""
    notes = [str(note) for note in fact(folder, "notes", [])]
    if of_party(folder):
        notes.insert(0, _PARTY.format(of_party(folder)))
    if is_merged(folder):
        notes.insert(0, "One party held all data: a simulation, for comparison.")
    elif int(fact(folder, "hosts", 1)) == 1:
        notes.insert(0, "All silos ran in one process: a simulation. The ledger counts what would cross.")
    notes += [why_not] if why_not else []
    return box(notes)


def _differs(folder: RunFolder, alone: RunFolder) -> str:
    """Why the run ``alone`` of silos by themselves cannot be compared with this one; empty where it can."""
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
    """The tiles of key figures."""
    metric, total = primary(folder), sum(flow.bytes for flow in flows)
    best, seeds = final_score(folder, "test", metric), len(members(folder))
    several = f" in {seeds} seeds" if seeds > 1 else ""
    spread = final_score(folder, "test_std", metric)
    deviation = "" if spread is None else f", ± {score_text(metric, spread)} over seeds"
    facts = [(score_text(metric, best), f"test {metric_label(metric)}{deviation}")]
    if alone:
        facts.append((gain_text(metric, best, final_score(alone, "test", metric)), "points over each silo alone"))
    if is_merged(folder):
        facts.append(("all data", "in one place"))
    else:
        each = bytes_text(total / steps_of(folder))
        facts.append((bytes_text(total), f"crossed{several}, {each} per step"))
        unit = headline(guarantees(folder)).unit
        facts.append((f"ε = {epsilon_text(epsilon_of(folder))}", f"for one {unit}, in the worst case"))
    attacked = attack_error(folder)
    if attacked is not None:
        facts.append((attack_text(attacked), "attack error, as a share of a guess's"))
    spent = f"of training{' per seed' if several else ''}"
    if fact(folder, "hosts", 1) > 1:
        spent += f", {duration(fact(folder, 'seconds_on_wire', None))} of it on the wire"
    facts.append((duration(fact(folder, "seconds", None)), spent))
    return tiles(facts)


def _settings(folder: RunFolder) -> str:
    """The last sections: the machine that it ran on, and the configuration that repeats the run."""
    known = fact(folder, "environment", {})
    environment = [[str(key), str(value)] for key, value in known.items() if key != "finished"]  # in the header
    config = (folder.path / "config.toml").read_text(encoding="utf-8")
    place = "<h2>Where it ran</h2>" + table(["", ""], environment, left=2) if environment else ""
    full = f"<details><summary>config.toml</summary><pre>{escape(config)}</pre></details>"
    return f"{place}<h2>Configuration</h2>{full}"
