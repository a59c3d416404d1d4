"""A GPU gives the same samples, masks and batches, and nearly the same training; skipped where there is none."""

import pytest
import torch

from isthmus.core.random import draw, keep_mask, stream
from isthmus.data.blocks import blocks
from isthmus.methods.catalogue import get, names
from isthmus.nn.model import MODELS
from isthmus.protect.chacha import keystream
from isthmus.train.result import Result
from tests.helpers.small import losses, run_method, small_graph

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")


def run_on(device: str, method: str, model: str, **training: object) -> Result:
    graph = blocks(nodes=400, degree=8)
    settings = {"epochs": 3, "lr": 0.01, **training}
    return run_method(method, graph, torch.arange(400) % 3, 3, model, seed=0, device=device, **settings)


def test_draws_and_masks_are_equal_integers() -> None:
    ids, key = torch.arange(-1000, 5000), stream(3, "device")
    assert torch.equal(draw(key, ids), draw(key, ids.cuda()).cpu())
    assert torch.equal(keep_mask(key, ids, 7, 0.3), keep_mask(key, ids.cuda(), 7, 0.3).cpu())


@pytest.mark.parametrize("batch", [0, 16])
@pytest.mark.parametrize("method", [name for name in names() if name != "centralised"])
def test_losses_agree_with_the_cpu(method: str, batch: int) -> None:
    if batch and get(method).last.exchange.whole_graphs:
        pytest.skip("serves whole graphs alone")
    model = "gcn" if method == "fedgcn" else "sage"
    cpu, gpu = (run_on(device, method, model, batch=batch, fanout=(3,)) for device in ("cpu", "cuda"))
    for a, b in zip(cpu.history, gpu.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-9)


@pytest.mark.parametrize("threshold", [1, 2])
def test_shares_and_masks_agree_with_the_cpu(threshold: int) -> None:
    protect = {"name": "fixed-point,shares,masks,server-masks", "threshold": threshold}
    graph, owner = blocks(nodes=400, degree=8), torch.arange(400) % 3
    cpu, gpu = (
        run_method("hifgl", graph, owner, 3, "gcn", {"protect": protect}, seed=0, device=device, epochs=3)
        for device in ("cpu", "cuda")
    )
    assert losses(gpu) == pytest.approx(losses(cpu), rel=1e-9)
    assert torch.equal(keystream(bytes(32), 5000, torch.device("cuda")).cpu(), keystream(bytes(32), 5000, CPU))


@pytest.mark.parametrize("model", [name for name in MODELS if name != "multi-pna"])
def test_every_model_agrees_with_the_cpu(model: str) -> None:
    cpu, gpu = (run_on(device, "fedavg", model, batch=16, fanout=(3,), epochs=1) for device in ("cpu", "cuda"))
    for a, b in zip(cpu.history, gpu.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-7)


@pytest.mark.parametrize("model", ["gin", "pna"])
def test_edge_updates_agree_with_the_cpu(model: str) -> None:
    graph, options = small_graph(30, 140, edge_task=True), {"edge_updates": True, "directed": True, "ports": 4}
    cpu, gpu = (
        run_method(
            "fedavg", graph, torch.arange(30) % 3, 3, model, model_options={**options, "layers": 3}, device=device,
            batch=4, fanout=(2,), steps=5,
        )
        for device in ("cpu", "cuda")
    )  # fmt: skip
    assert losses(gpu) == pytest.approx(losses(cpu), rel=1e-7)
