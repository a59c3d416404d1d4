"""Adam and SGD of torch, by name, without the import of torch's compiler that their first call would bring.

torch marks the methods of its optimisers so that its compiler leaves them alone, and the mark imports the compiler:
1.3 seconds of every process, also where nothing is ever compiled. Here the methods are taken without their marks.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap

import torch
from torch.optim import SGD, Adam, Optimizer


class _Unmarked(Optimizer):
    """The methods that all optimisers share, unmarked."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class _Adam(_Unmarked, Adam):
    """torch's Adam with an unmarked step."""

    step = torch.no_grad()(unwrap(Adam.step))


class _SGD(_Unmarked, SGD):
    """torch's SGD with an unmarked step."""

    step = torch.no_grad()(unwrap(SGD.step))


OPTIMISERS: dict[str, Callable[..., Optimizer]] = {"adam": _Adam, "sgd": _SGD}
