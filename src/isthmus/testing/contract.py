"""The contract of parts of every kind: a frozen spec, live parts that share nothing, state in checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.silo import Silo
from isthmus.methods.method import Method
from isthmus.testing.runs import losses, method_of, open_of, resumed, small_silos, step_losses, walk
from isthmus.train.training import Training

FULL: Mapping[str, Any] = {"batches": "local"}
SAMPLED: Mapping[str, Any] = {"batches": "joint", "batch": 5, "fanout": (2,)}


class PartContract:
    """Properties of any part of a method; subclass the contract of its kind instead of this one.

    ``part`` makes the spec: a class, or ``staticmethod(lambda: Mine(option=3))``. Runs have a ``model``, with
    ``model_options``, and are tried with each of several ``settings`` of training; a part that refuses some of them
    says here which it takes.
    """

    part: Callable[[], Any]
    model: ClassVar[str] = "gcn"
    model_options: ClassVar[Mapping[str, Any]] = {}
    settings: ClassVar[Sequence[Mapping[str, Any]]] = (FULL, SAMPLED)

    def composed(self, part: Any, **others: Any) -> Method:
        """A method with the part in it, and ``others`` beside it."""
        return method_of(**others)

    def opened(self, method: Method, silos: list[Silo] | None = None, **options: Any) -> Training:
        """A run of a method on ``silos`` (None: three small ones)."""
        made = {"model": self.model, "model_options": dict(self.model_options), "epochs": 2, **options}
        return open_of(method, small_silos() if silos is None else silos, **made)

    def fresh(self, silos: list[Silo] | None = None, **options: Any) -> Training:
        """A run of a new spec."""
        return self.opened(self.composed(self.part()), silos, **options)

    def served_or_refused(self, method: Method, silos: list[Silo] | None = None, **options: Any) -> Training | None:
        """A run to its last step, all losses finite; or None, where an ``IsthmusError`` says why there is none."""
        try:
            training = self.opened(method, silos, **options)
            found = step_losses(training)
        except IsthmusError as error:
            assert str(error), "a refusal must say what to do"
            return None
        assert found and all(map(_finite, found)), f"losses with {options} are {found}"
        return training

    def test_the_spec_is_a_frozen_dataclass(self) -> None:
        """A part's class is itself a frozen dataclass, not only a subclass of one, and no field can be set."""
        spec = self.part()
        kind = type(spec).__name__
        own = is_dataclass(spec) and "__dataclass_params__" in vars(type(spec))
        assert own, f"write @dataclass(frozen=True) above class {kind}: a subclass does not inherit it"
        for name in [field.name for field in fields(spec)] or ["anything"]:
            try:
                setattr(spec, name, None)
            except FrozenInstanceError:
                continue
            raise AssertionError(f"{kind}.{name} can be set; write @dataclass(frozen=True)")

    def test_specs_are_equal_by_value(self) -> None:
        """Copies are equal and hash alike, and every field counts: there is no room for hidden state."""
        spec = self.part()
        for same in (self.part(), copy.deepcopy(spec), replace(spec)):
            assert same == spec and hash(same) == hash(spec), f"{same} and {spec} should be equal, and hash alike"
        for field in fields(spec):
            other = copy.copy(spec)
            object.__setattr__(other, field.name, object())
            assert other != spec, f"{field.name} is left out when specs are compared; keep state in the live part"

    def test_two_runs_of_one_spec_share_nothing(self) -> None:
        """Steps of two runs in turn give the losses of a run alone, bit for bit, and leave the spec as it was."""
        for given in self.settings:
            spec = self.part()
            before = copy.deepcopy(spec)
            alone = step_losses(self.opened(self.composed(spec), **given))
            a, b = (self.opened(self.composed(spec), **given) for _ in range(2))
            pairs = [(a.progress.last_loss, b.progress.last_loss) for _ in zip(walk(a), walk(b), strict=True)]
            assert len(alone) > 1 and all(map(_finite, alone)), f"losses with {dict(given)} are {alone}"
            assert [x for x, _ in pairs] == alone, f"a second run of one spec has other losses, with {dict(given)}"
            assert [y for _, y in pairs] == alone, f"two runs of one spec disturb each other, with {dict(given)}"
            assert spec == before, f"training has changed the spec: {before} is now {spec}"
            assert not _tables(a) & _tables(b), "two runs keep their state in one tensor"

    def test_a_resumed_run_goes_on_as_the_whole_one(self) -> None:
        """A part keeps all it must remember in ``state``: resumed and whole runs have equal losses and parameters."""
        for given in self.settings:
            after = (1,) if given.get("batch") else (1, 2)  # rounds last two epochs, unless the part says otherwise
            whole, again = resumed(partial(self.fresh, **given, epochs=3, evaluate_every=3), after)
            for epoch, run in again.items():
                found, where = losses(run), f"in a run resumed after epoch {epoch}, with {dict(given)}"
                assert found and found == losses(whole)[-len(found) :], f"losses differ {where}"
                for name, tensor in whole.last.items():
                    assert torch.equal(tensor, run.last[name]), f"{name} differs {where}"


def close_losses(found: Sequence[float], expected: Sequence[float], what: str) -> None:
    """Assert that losses are equal to 1e-10 relative; ``what`` is what the error calls them."""
    both = (torch.tensor(each, dtype=torch.float64) for each in (found, expected))
    torch.testing.assert_close(*both, rtol=1e-10, atol=0, msg=lambda why: f"{what}: {why}")


def parameters_of(training: Training) -> dict[str, Tensor]:
    """The classifier's parameters [sets, ...] as they are now, copied."""
    return {name: p.detach().clone() for name, p in training.learner.classifier.sets.parameters.items()}


def _finite(loss: float) -> bool:
    return bool(torch.isfinite(torch.tensor(loss)))


def _tables(training: Training) -> set[int]:
    """Memory addresses of the tensors that the live parts of a run keep."""
    tensors = [tensor for state in training.stage.states().values() for tensor in state.values()]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}
