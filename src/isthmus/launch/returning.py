"""A host that comes back to a run: all open the run anew, and the host is told where the others stand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import safetensors.torch
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER, Kind, Purpose
from isthmus.engine.learner import CLASSIFIER
from isthmus.runs.config import RunConfig
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.rounds import Returned
from isthmus.train.training import Training

NO_CHECKPOINT = (
    "This host has no checkpoint of the run that is under way, so that it does not know what it had been told before "
    "training; it cannot come back. Start the run again on all hosts."
)
PHASES = "Method '{}' has several phases, and lets no host in that was lost; start the run again on all hosts."


def refuse_return(config: RunConfig, checkpoints: Checkpoints) -> None:
    """Refuse to come back to a run that this host cannot take up."""
    if len(config.method.phases) > 1:
        raise IsthmusError(PHASES.format(config.method.name))
    if not checkpoints.committed():
        raise IsthmusError(NO_CHECKPOINT)
    checkpoints.read_newest()


def reopen(open_again: Callable[[], Training], old: Training, back: Returned) -> Training:
    """The run opened anew on a host that was there all the time, where it stood; what has left stays booked."""
    wire = old.wire
    noise, booked, events = wire.noise, wire.releases.packed(), wire.releases.events
    with wire.ledger.during(Purpose.SETUP):
        training = open_again()
    wire.noise = noise
    wire.releases.unpack(booked)
    wire.releases.events = events
    training.federation.drawn, training.federation.learnt = old.federation.drawn, old.federation.learnt
    for sentence in old.federation.notes:
        training.federation.note(sentence)
    for name in ("seconds", "wire_seconds", "computing"):
        setattr(training.progress, name, getattr(old.progress, name))
    back.kept.restore(training)
    _catch_up(training, returned=False)
    training.stage.exchange.welcome(back.silos)
    return training


def take_up(training: Training, checkpoints: Checkpoints) -> None:
    """Take up the run on a host that comes back: its own from its last checkpoint, what silos share from the others."""
    checkpoints.resume(training, alone=True)
    _catch_up(training, returned=True)
    training.stage.exchange.welcome(training.wire.mine)


def _catch_up(training: Training, returned: bool) -> None:
    """The server tells every silo where the run stands and what silos share; whoever has ``returned`` takes it over."""
    wire = training.wire
    words = safetensors.torch.save(_shared(training)) if wire.houses(SERVER) else b""
    blob = torch.frombuffer(bytearray(words), dtype=torch.uint8) if words else None
    with wire.ledger.during(Purpose.SETUP):
        told = wire.answer(Kind.PARAMETERS, blob)
    if returned:
        _take_over(training, safetensors.torch.load(told.numpy().tobytes()))


def _shared(training: Training) -> dict[str, Tensor]:
    """What silos share at the start of a round: parameters, state of syncs and optimiser, selection, progress."""
    progress, stage = training.progress, training.stage
    stands = {"epoch": progress.epoch, "step": progress.step, "round": progress.round, "due": progress.due}
    stands |= {"steps": len(progress._losses), "draws": training.wire.noise.draws}
    named = {"progress": torch.frombuffer(bytearray(json.dumps(stands).encode()), dtype=torch.uint8)}
    for name, sync in stage.syncs.items():
        model = training.learner.models[name]
        live = model.sets.everything()
        named |= {f"model/{name}/{key}": live[key][:1].clone() for key in _keys(training, name)}
        named |= {f"sync/{name}/{key}": x for key, x in sync.shared().items()}
        for index, state in model.optimiser.state_dict()["state"].items() if stage.phase.sync.lockstep else ():
            named |= {f"optimiser/{name}/{index}/{key}": x.clone() for key, x in state.items()}
    kept = {f"kept/{key}" for key in _names(training)}
    for judge in stage.judges if not stage.best.alone else ():
        for key, x in judge.best.state.items():
            if key in kept or not key.startswith("kept/"):
                named[f"best/{judge.how}/{key}"] = x[:1].clone() if key in kept else x
    return {key: x.contiguous().cpu() for key, x in named.items()}


def _keys(training: Training, name: str) -> list[str]:
    """The parameters of a model, and its running moments, that all silos have in common."""
    stage, sets = training.stage, training.learner.models[name].sets
    if stage.phase.sync.lockstep:
        return sets.names() if stage.site.agreed else list(sets.parameters)
    return [key for key in sets.names() if stage.phase.sync.shares(key)]


def _names(training: Training) -> Iterator[str]:
    """What all silos have in common, by the names under which selection keeps it."""
    for name in training.stage.syncs:
        head = "" if name == CLASSIFIER else f"{name}/"
        yield from (f"{head}{key}" for key in _keys(training, name))


def _take_over(training: Training, told: dict[str, Tensor]) -> None:
    """Write what the server told of the others into this host's run."""
    progress, stage = training.progress, training.stage
    stands = json.loads(bytes(told.pop("progress").tolist()))
    progress.epoch, progress.step, progress.round = stands["epoch"], stands["step"], stands["round"]
    progress.due, progress.round_starts = stands["due"], True
    progress.computing += [0.0] * (progress.epoch - len(progress.computing))  # of epochs that it was not there for
    progress._losses = [torch.zeros(max(len(training.wire.mine), 1), 2).double() for _ in range(stands["steps"])]
    training.wire.noise.draws = max(training.wire.noise.draws, stands["draws"])
    states: dict[str, dict[int, dict[str, Tensor]]] = {}
    best: dict[str, dict[str, Tensor]] = {}
    for name, x in told.items():
        what, of, key = name.split("/", 2)
        if what == "model":
            live = training.learner.models[of].sets.everything()[key]
            live.copy_(x.to(live).expand_as(live))
        elif what == "sync":
            stage.syncs[of].take_over(key, x.to(training.device))
        elif what == "optimiser":
            index, _, inner = key.partition("/")
            states.setdefault(of, {}).setdefault(int(index), {})[inner] = x
        else:
            best.setdefault(of, {})[key] = x
    for of, state in states.items():
        optimiser = training.learner.models[of].optimiser
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    for judge in stage.judges:
        if judge.how in best:
            judge.best.state = _selection(training, best[judge.how])


def _selection(training: Training, told: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of a selection as told; what silos have for themselves is as this host has it now."""
    if not any(key.startswith("kept/") for key in told):
        return told
    live = {f"kept/{name}": x.clone() for name, x in training.learner.everything(training.stage.phase.learns).items()}
    return told | {key: told[key].to(x).expand_as(x).clone() if key in told else x for key, x in live.items()}
