"""Training, prediction and saving from Python: a graph and an owner vector in, a trained model and its scores out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import is_folder, telling_of_disks, write_atomic
from isthmus.core.version import VERSION
from isthmus.data.whole_numbers import whole_numbers
from isthmus.graph.cut import split_graph
from isthmus.graph.differing_edges import with_notes_on_edges
from isthmus.graph.graph import SPLIT_NAMES, Graph
from isthmus.graph.merged import merge
from isthmus.graph.partition import partition
from isthmus.graph.silo import Silo
from isthmus.graph.stack import Stack
from isthmus.launch.fit_arguments import check_arguments
from isthmus.launch.given import train_into
from isthmus.launch.host import check_device, open_run, process_set_up
from isthmus.launch.silos import agree_before_merge
from isthmus.launch.trackers import tell_the_end, watcher_of
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.method import Method
from isthmus.protect.base import Mechanism
from isthmus.report.report import write_report
from isthmus.runs.config import resolve
from isthmus.runs.data_config import GIVEN
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import full_key, merge_into, nest
from isthmus.train.loop import train
from isthmus.train.result import Result
from isthmus.train.watcher import Watcher
from isthmus.wire.local import LocalWire


def split(graph: Graph, how: str | Tensor | Sequence[int], silos: int | None = None, seed: int = 0) -> list[Silo]:
    """Cut a graph into silos: by an owner vector, or by a partitioner (``louvain``, ``metis``, ``random``, ...)."""
    graph.check()
    if silos is not None and (isinstance(silos, bool) or not isinstance(silos, int)):
        raise IsthmusError(f"silos is {silos!r}; give a whole number of silos.")
    if isinstance(how, str):
        count = 5 if silos is None else silos
        return split_graph(graph, partition(graph, how, count, seed), count)
    owner = whole_numbers("owner", how)
    if owner.dim() != 1:
        raise IsthmusError(f"The owner vector has the shape {list(owner.shape)}; give one number for each node.")
    count = silos if silos is not None else int(owner.max()) + 1 if len(owner) else 1
    if silos is None and count > max(graph.n, 1):
        raise IsthmusError(
            f"The owner vector names silo {count - 1:,} for {graph.n:,} nodes; number silos from 0 on, as "
            "owner.unique(return_inverse=True)[1] does, or say how many there are with silos=K."
        )
    return split_graph(graph, owner, count)


def fit(
    silos: Sequence[Silo],
    method: str | Method = "fedavg",
    model: str = "sage",
    seed: int = 0,
    dtype: str = "float32",
    settings: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
    out: str | Path | None = None,
    keep_data: bool = False,
    overwrite: bool = False,
    **parts: Any,
) -> Result:
    """Train a model over silos in this process.

    ``out``: a folder for what a run of the command line leaves behind: report, metrics, ledger, model, checkpoints, so
    that ``isthmus compare``, ``report`` and ``score`` work on it. ``keep_data`` keeps the silos there too: without them
    ``isthmus audit`` cannot replay the run. ``overwrite`` replaces a run that is there.

    ``method`` is a name of the catalogue, or a :class:`Method` of your own. ``parts`` swap parts of a method of one
    phase: ``exchange``, ``schedule``, ``sync``, ``objective`` (a name, or a part), ``protect`` (a name such as
    ``"gaussian,int8"``, a mechanism, or a sequence of them) and ``score``. ``settings`` are the keys of the command
    line's ``--set``, as tables or dotted: ``{"train": {"epochs": 50}, "sync.local_epochs": 3}``. While it trains the
    process has as many threads as ``system.threads`` says (1), as on the command line (0: as many as it has).
    """
    ordered = _in_order(silos)
    check_arguments(method, settings, parts)
    recipe: dict[str, Any] = {"seed": seed, "dtype": dtype, "model": {"name": model}}
    for key, value in (settings or {}).items():
        merge_into(recipe, nest(key if isinstance(value, Mapping) else full_key(key), value))
    base = catalogue.get(method) if isinstance(method, str) else method
    config = resolve(recipe, _with_parts(base, parts))
    check_device(config.system.device)
    config = replace(config, data=replace(config.data, name=GIVEN, silos=len(ordered), split="as given"))
    if keep_data and out is None:
        raise IsthmusError("keep_data=True keeps the silos in a run folder; say in which, like out='runs/mine'.")
    given = with_notes_on_edges(ordered)
    whole = [merge(agree_before_merge(given, config.data))] if config.method.merged else given
    followed = watcher_of(config, watcher)
    try:
        with process_set_up(config):
            if out is None:
                result = train(open_run(config, LocalWire(len(whole), config.method.chain), whole), followed)
            else:
                result = train_into(Path(out), config, whole, ordered if keep_data else [], followed, overwrite)
        tell_the_end(followed, result)
    finally:
        followed.close()
    if out is not None:
        write_report(RunFolder.open(out))
    return result


def _in_order(silos: Sequence[Silo]) -> list[Silo]:
    """The silos by number, whatever order they come in; raises where a number is missing or taken twice."""
    if isinstance(silos, Graph) or not isinstance(silos, Iterable) or not all(isinstance(silo, Silo) for silo in silos):
        raise IsthmusError("fit takes a list of silos, as isthmus.split makes them of a graph.")
    ordered = sorted(silos, key=lambda silo: silo.number)
    numbers = [silo.number for silo in ordered]
    if not ordered or numbers != list(range(len(ordered))):
        raise IsthmusError(f"fit got silos with the numbers {numbers}; give all silos of a split, 0 to K-1, each once.")
    return ordered


def _with_parts(method: Method, parts: Mapping[str, Any]) -> Method:
    """The method with parts swapped: by name, or for parts of the caller's own."""
    words = {key: value for key, value in parts.items() if isinstance(value, str) or key == "score"}
    named = {key: value if key == "score" else {"name": value} for key, value in words.items()}
    method = compose(method, named)
    for axis, part in parts.items():
        if axis in words:
            continue
        if axis == "protect":
            method = replace(method, protect=(part,) if isinstance(part, Mechanism) else tuple(part))
        elif len(method.phases) > 1:
            raise IsthmusError(
                f"Method '{method.name}' has several phases; give fit a Method with {axis} in the phase it belongs to."
            )
        else:
            method = method.with_phase(method.phases[0].name, **{axis: part})
    return method


@dataclass(frozen=True)
class Predictions:
    """What a model says of the scored nodes (or edges), silo after silo."""

    labels: tuple[str, ...]  # names of classes, or of tasks
    silo: list[str]  # [n]
    ids: list[Any]  # [n] public ids of nodes, or (source, target) of edges
    probabilities: Tensor  # [n, labels]
    y: Tensor  # [n] or [n, labels]; -1 unknown


def predict(result: Result, split: str = "test") -> Predictions:
    """Predictions of a trained model for a split of the silos it was trained over, scored as its method scores."""
    if split not in SPLIT_NAMES[1:]:
        raise unknown("split", split, SPLIT_NAMES[1:])
    scorer, wire = result.training.stage.scorer, result.training.wire
    stack, schema = scorer.layout.stack, scorer.site.schema
    logits, y, index = scorer.logits(SPLIT_NAMES.index(split))
    ids = [name for silo in scorer.site.federation.silos for name in _all_ids(silo)[: _rows(stack, silo)]]
    at = index if schema.target == "node" else stack.ends[1][index]
    whose = [wire.party(stack.silos[place]) for place in stack.silo_of(at).tolist()]
    if schema.target == "node":
        named = [ids[row] for row in index.tolist()]
    else:
        named = [(ids[source], ids[target]) for source, target in stack.ends[:, index].T.tolist()]
    chance = logits.sigmoid() if schema.task == "tasks" else logits.softmax(1)
    return Predictions(schema.labels, whose, named, chance, y)


def _all_ids(silo: Silo) -> list[Any]:
    """Public ids of owned nodes, then of the halo."""
    return [*silo.ids.tolist(), *silo.halo_ids.tolist()]


def _rows(stack: Stack, silo: Silo) -> int:
    """How many rows a silo has in a stack: owned ones, and its halo where the view keeps it."""
    place = stack.silos.index(silo.number)
    return stack.ptr[place + 1] - stack.ptr[place]


def save(result: Result, path: str | Path, silo: int = 0) -> None:
    """Write a trained model as a safetensors file; where silos have models of their own, that of one silo.

    Masks, where a model has any, are multiplied into its weights.
    """
    path, count = Path(path), result.training.wire.silos
    if isinstance(silo, bool) or not isinstance(silo, int) or not 0 <= silo < count:
        raise IsthmusError(f"silo is {silo!r}; the run has {count}, numbered from 0 to {count - 1}.")
    if not is_folder(path.parent) or is_folder(path):
        why = "that is a folder" if is_folder(path) else f"there is no folder '{path.parent}'"
        raise IsthmusError(f"'{path}' cannot be written: {why}; give the path of a file in a folder that is there.")
    live = result.training.learner.unmasked()
    chosen = {name: t[min(silo, len(t) - 1)][None].detach().cpu().contiguous() for name, t in live.items()}
    about = {"isthmus": VERSION, "labels": json.dumps(result.training.federation.schema.labels)}
    with telling_of_disks():
        write_atomic(path, safetensors.torch.save(chosen, about))
