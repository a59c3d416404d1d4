"""The generator of missing neighbours: what bounds its rows, and what that does to steps that are too large."""

import pytest
import torch

from isthmus.nn.block import Rows
from isthmus.nn.generator import Generator

NODES, HIDDEN, WIDTH, SILOS = 20, 64, 128, 20
ROWS = Rows((0, NODES), torch.arange(NODES))
WANTED = torch.ones(NODES, 2, dtype=torch.bool)


def generator(unit: bool, shared: bool = False) -> Generator:
    torch.manual_seed(0)
    made = Generator(8, HIDDEN, [], 2, WIDTH, 256, shared=shared, unit=unit)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape) / parameter.shape[-2 if parameter.dim() > 2 else -1] ** 0.5
    return made


def rows_of(made: Generator, code: torch.Tensor) -> torch.Tensor:
    return made.generate(code, ROWS) if made.shared else made.generate_apart(code, ROWS, WANTED)


@pytest.mark.parametrize("shared", [False, True])
def test_rows_have_unit_length_or_numbers_within_one(shared: bool) -> None:
    code = 10 * torch.randn(NODES, HIDDEN, generator=torch.Generator().manual_seed(1))
    unit, bounded = (rows_of(generator(unit, shared), code) for unit in (True, False))
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(len(unit)))
    assert float(bounded.detach().abs().max()) <= 1 < float(bounded.detach().norm(dim=1).max())


@pytest.mark.parametrize(("unit", "learns"), [(True, True), (False, False)])
def test_rows_of_unit_length_go_on_learning_where_those_of_a_tanh_are_stuck(unit: bool, learns: bool) -> None:
    """FedDEP's step, 0.1 along the gradient of squared distances to the prototypes of ten silos."""
    made, random = generator(unit), torch.Generator().manual_seed(2)
    goal = torch.nn.functional.normalize(torch.randn(1, WIDTH, generator=random))
    for _ in range(100):
        rows = rows_of(made, torch.randn(NODES, HIDDEN, generator=random))
        loss = SILOS * (rows - goal).square().sum() / NODES
        made.zero_grad()
        loss.backward()
        for parameter in made.parameters():
            if parameter.grad is not None:
                parameter.data -= 0.1 * parameter.grad
    assert (float(loss.detach()) < 0.5 * SILOS) is learns
    assert learns or float(rows.detach().abs().median()) > 0.99
