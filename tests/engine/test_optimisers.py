import subprocess
import sys
from typing import Any

import pytest
import torch

from isthmus.engine.optimisers import OPTIMISERS


def _parameters_after(make: Any, steps: int) -> torch.Tensor:
    """What an optimiser makes of some parameters, with weight decay, and with its state saved and loaded half-way."""
    values = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3).requires_grad_()
    groups = [{"params": [values], "weight_decay": 0.1}]
    optimiser = make(groups, lr=0.1, fused=True)
    for step in range(steps):
        if step == steps // 2:
            kept = optimiser.state_dict()
            optimiser = make(groups, lr=0.1, fused=True)
            optimiser.load_state_dict(kept)
        optimiser.zero_grad()
        (values**4 + values).sum().backward()
        optimiser.step()
    return values.detach()


@pytest.mark.parametrize(("name", "theirs"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)])
def test_steps_are_those_of_torch_bit_for_bit(name: str, theirs: Any) -> None:
    assert torch.equal(_parameters_after(OPTIMISERS[name], 6), _parameters_after(theirs, 6))


def test_training_does_not_import_the_compiler() -> None:
    script = (
        "import sys, isthmus\n"
        "silos = isthmus.split(isthmus.load('blocks', nodes=400), 'random', 2)\n"
        "isthmus.fit(silos, 'fedavg', settings={'train': {'epochs': 2}})\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
