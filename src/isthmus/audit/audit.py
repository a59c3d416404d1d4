"""The work of ``isthmus audit``: replay a run, attack what it released, and measure how much that gives away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from isthmus.audit.attacks import Scene, features_from_rows, links, treatment
from isthmus.audit.findings import DISCLOSED, NONE, NOT_ATTACKED, Audit, Finding, keep, not_tried
from isthmus.audit.label_attacks import labels_from_adjoints
from isthmus.audit.prototypes import features_from_prototypes
from isthmus.audit.replay import open_audit, replay
from isthmus.audit.request import AuditRequest
from isthmus.audit.row_attacks import Adversary
from isthmus.audit.sum_attacks import PartialsAttack, features_from_sums_of_features
from isthmus.audit.watching import Replaying, Watch
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import ROWS, Kind
from isthmus.runs.folder import RunFolder
from isthmus.runs.kept_config import kept_config, note_on_changed_config
from isthmus.runs.summary import Flow, members, read_flows
from isthmus.runs.text import bytes_text, count_text

_FIRST = "Of {} runs with a seed each, this is an audit of the first ({}) alone."
READ = (*ROWS, Kind.PROTOTYPES)  # what attacks can read
RECORDS = (Kind.FEATURES, Kind.LABELS, Kind.EDGES, Kind.SCORES)  # records as they are: nothing is left to infer
EXTREMES = {"pna": "", "sage": "max"}  # models with extremes in their aggregates, and by which option


def audit_run(path: str, request: AuditRequest, watch: Watch) -> Audit:
    """Audit a finished run (with several seeds, the first) and write ``audit.json`` into its folder."""
    request.check()
    folder, *others = members(RunFolder.open(path))
    changed = note_on_changed_config(folder)
    try:
        audit = _findings(folder, request, watch)
    except IsthmusError as error:
        raise IsthmusError(" ".join((str(error), *changed))) from error
    first = (_FIRST.format(1 + len(others), folder.path.name),) if others else ()
    return keep(folder, replace(audit, notes=(*changed, *audit.notes, *first)))


def _findings(folder: RunFolder, request: AuditRequest, watch: Watch) -> Audit:
    """What attacks found in a run, and what else has left it."""
    flows = [flow for flow in read_flows(folder) if flow.rows]
    kinds = {flow.kind for flow in flows}
    audit = _attacked(folder, request, watch) if kinds & {kind.value for kind in READ} else Audit(seed=request.seed)
    read = {finding.kind for finding in audit.findings}
    rest = [*not_tried(kinds, _extremes(folder)), *_left(flows, read)]
    return replace(audit, findings=(*audit.findings, *rest))


def _attacked(folder: RunFolder, request: AuditRequest, watch: Watch) -> Audit:
    """The findings of all attacks on a run that has released rows of nodes, or prototypes."""
    opened = open_audit(folder)
    adversary = Adversary(opened.context)
    partials = PartialsAttack(adversary, request.seed)
    heard = replay(opened, folder, request, partials.listen, Replaying(watch))
    scene = Scene(adversary, heard.training, heard.journal, request, watch)
    findings = [*features_from_rows(scene), *features_from_sums_of_features(scene)]
    if heard.journal.layers(Kind.PARTIALS):
        findings += partials.findings(scene)
    findings += [*features_from_prototypes(scene), *labels_from_adjoints(scene), *links(scene)]
    clip, sigma = treatment(heard.training.wire.protect, Kind.EMBEDDINGS)
    return Audit(tuple(findings), clip, sigma, request.seed, heard.notes)


def _extremes(folder: RunFolder) -> bool:
    """Whether aggregates of the run's model hold largest or smallest entries (PNA, or GraphSAGE with max)."""
    model = kept_config(folder).model
    return bool(EXTREMES.get(model.name) == model.options.get("aggregate", ""))


def _left(flows: Sequence[Flow], read: set[str]) -> Iterator[Finding]:
    """A finding without a number for every kind of message that left and that no attack has read."""
    for kind in dict.fromkeys(flow.kind for flow in flows):
        if kind not in read and kind != Kind.LEDGER:
            size = sum(flow.bytes for flow in flows if flow.kind == kind)
            messages = count_text(sum(flow.messages for flow in flows if flow.kind == kind), "message")
            what = DISCLOSED if kind in RECORDS else NOT_ATTACKED
            yield Finding(NONE, kind, what, note=f"{messages}, {bytes_text(size)}")
