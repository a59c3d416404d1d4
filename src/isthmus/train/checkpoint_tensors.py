"""The state of a training as named tensors, as a checkpoint holds them."""

from __future__ import annotations

from torch import Tensor

from isthmus.train.training import Training


def tensors_of(training: Training) -> dict[str, Tensor]:
    """Everything that the next epoch depends on. Randomness has no state: it is a function of seed and step."""
    named: dict[str, Tensor] = {f"model/{name}": t for name, t in training.learner.everything().items()}
    for part, state in training.stage.states().items():
        named |= {f"part/{part}/{name}": t for name, t in state.items()}
    named |= {f"releases/{name}": t for name, t in training.wire.releases.packed().items()}
    named |= {f"learnt/{name}": t for name, t in training.federation.learnt.state.items()}
    named |= {f"drawn/{name}": t for name, t in training.federation.drawn.state.items()}
    named |= {f"ledger/{name}": t for name, t in training.wire.ledger.growing().items()}
    for name, model in training.learner.models.items():
        for index, state in model.optimiser.state_dict()["state"].items():
            kept = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            named |= {f"optimiser/{name}/{index}/{key}": value for key, value in kept.items()}
    return {name: t.detach().cpu().contiguous().clone() for name, t in named.items()}


def load_tensors(training: Training, tensors: dict[str, Tensor]) -> None:
    """Load the tensors that :func:`tensors_of` gave into models, parts, books and optimisers."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        head, _, rest = name.partition("/")
        groups.setdefault(head, {})[rest] = tensor.to(training.device)
    for name, live in training.learner.everything().items():
        live.copy_(groups["model"][name])
    training.stage.load_states(_by_head(groups.get("part", {})))
    training.wire.releases.unpack(groups.get("releases", {}))
    training.federation.drawn.state = groups.get("drawn", {})
    training.federation.learnt.state = {name: t.cpu() for name, t in groups.get("learnt", {}).items()}
    for name, kept in _by_head(groups.get("optimiser", {})).items():
        optimiser = training.learner.models[name].optimiser
        states = {int(index): state for index, state in _by_head(kept).items()}
        optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})


def _by_head(named: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors grouped by the first part of their names."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in named.items():
        head, _, rest = name.partition("/")
        groups.setdefault(head, {})[rest] = tensor
    return groups
