"""Compiled kernels give the numbers of plain torch, and say why where they cannot run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.core.errors import IsthmusError
from isthmus.nn import PNA, SUM, Directed, EdgeEncoder, Message
from isthmus.nn.block import Block
from isthmus.nn.maps import Lookup
from isthmus.nn.monoid import Moments
from isthmus.runs.config import SystemConfig
from isthmus.testing import random_block

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
KINDS = ("rows", "values", "lookup", "common", "everything")


@pytest.fixture(autouse=True)
def _automatic() -> Iterator[None]:
    yield
    kernels.choose("auto")


def leaves(block: Block, kind: str, width: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"rows": len(block.sources), "values": len(block.src), "lookup": 7, "common": len(block.targets)}
    wanted = [n for name, n in shapes.items() if name == "rows" or kind in (name, "everything")]
    made = [torch.randn(n, width, generator=generator, dtype=torch.float64) for n in wanted]
    return [x.to(device, dtype).requires_grad_() for x in made]


def message(block: Block, kind: str, parts: list[Tensor]) -> tuple[Message, Tensor | None]:
    """A random message with the given parts, and what is added to all messages of a target."""
    rows, *rest = parts
    values = rest.pop(0) if kind in ("values", "everything") else None
    at = torch.randint(0, 7, (len(block.src), 2), generator=torch.Generator().manual_seed(4)).to(rows.device)
    lookup = Lookup(rest.pop(0), at) if kind in ("lookup", "everything") else None
    return Message(rows=rows, values=values, lookup=lookup), rest[0] if rest else None


def on(block: Block, device: str) -> Block:
    return Block(block.src.to(device), block.dst.to(device), block.sources, block.targets)


def aggregate(block: Block, kind: str, width: int, groups: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """The finished aggregate, and the gradient of everything it is made of."""
    block = on(block, device)
    parts = leaves(block, kind, width, dtype, device)
    whole, common = message(block, kind, parts)
    out = Moments(groups).collect(whole, block, None, common).value
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(out)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), parts)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "groups"), [(1, 1), (6, 2), (64, 1), (150, 2), (260, 4)])
def test_compiled_equals_plain(kind: str, width: int, groups: int, dtype: torch.dtype, device: str) -> None:
    block = random_block(40, 130, 2, alone=6)
    if kernels.compiled(torch.device(device), dtype) is None:
        pytest.skip(kernels.describe_kernels(torch.device(device)))
    found = aggregate(block, kind, width, groups, dtype, device)
    kernels.choose("plain")
    expected = aggregate(block, kind, width, groups, dtype, device)
    near = 1e-12 if dtype == torch.float64 else 1e-4  # a small deviation amplifies the rounding of its gradient
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).norm()) <= near * float(b.norm())


@pytest.mark.parametrize("device", DEVICES)
def test_ties_share_equally(device: str) -> None:
    """Where all messages are equal, every edge is smallest and largest, and the deviation has no gradient."""
    block = on(random_block(9, 24, 5, alone=2), device)
    rows = torch.ones(9, 3, dtype=torch.float64, device=device, requires_grad=True)
    mean, low, high, std = Moments().collect(Message(rows=rows), block, None).value[0].unbind(1)
    assert not std.any()
    (low + high).sum().backward()
    ties, rows.grad = rows.grad, None
    Moments().collect(Message(rows=rows), block, None).value[0, :, 0].sum().backward()
    torch.testing.assert_close(ties, 2 * rows.grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("nodes", "edges"), [(3, 0), (1, 4)])
def test_no_edges_and_one_node(nodes: int, edges: int, device: str) -> None:
    out, grad = aggregate(random_block(nodes, edges, alone=0), "rows", 5, 1, torch.float64, device)
    assert torch.isfinite(out).all() and torch.isfinite(grad).all()
    assert bool(out.any()) == bool(edges)


def test_threads_make_no_difference() -> None:
    block, before = random_block(3000, 9000, 1), torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(aggregate(block, "everything", 8, 2, torch.float64, "cpu"))
    torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    torch.testing.assert_close(found[0][3], found[1][3], rtol=1e-12, atol=1e-12)


def test_a_layer_may_meet_both_kinds_of_encodings() -> None:
    """Looked-up tables are the dense encodings, mapped before they are gathered."""
    block = random_block(12, 40, 3)
    encoder, layer = EdgeEncoder(3, ports=4).double(), PNA(5, 8, 19).double()
    h = torch.randn(12, 5, dtype=torch.float64)
    encoded = encoder(block)
    torch.testing.assert_close(layer(h, block, encoded), layer(h, block, encoded.dense()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("choice", kernels.CHOICES)
def test_what_is_common_equals_a_value_on_every_edge(choice: str) -> None:
    kernels.choose(choice)
    block = random_block(12, 40, 3)
    rows, common = torch.randn(12, 6, dtype=torch.float64), torch.randn(12, 6, dtype=torch.float64)
    found = Moments(2).collect(Message(rows=rows), block, None, common).value
    expected = Moments(2).collect(Message(rows=rows, values=common[block.dst]), block).value
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_only_moments_take_a_common_part() -> None:
    with pytest.raises(IsthmusError, match="Sum takes no part"):
        SUM.collect(Message(rows=torch.ones(5, 2)), random_block(5, 6), None, torch.ones(5, 2))


def test_directed_layers_learn_the_same_with_and_without() -> None:
    block = random_block(12, 40, 3)
    block.reverse = random_block(12, 40, 4)
    layer, h = Directed(PNA, 5, 8).double(), torch.randn(12, 5, dtype=torch.float64)
    grads = []
    for choice in kernels.CHOICES:
        kernels.choose(choice)
        grads.append(torch.autograd.grad(layer(h, block).square().sum(), list(layer.parameters())))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_plain_torch_can_be_chosen() -> None:
    kernels.choose("plain")
    assert kernels.compiled(torch.device("cpu"), torch.float32) is None
    assert kernels.describe_kernels(torch.device("cpu")) == "plain torch, as chosen"


def test_an_unknown_choice_lists_the_choices() -> None:
    with pytest.raises(ValueError, match="auto, plain"):
        kernels.choose("fast")
    with pytest.raises(IsthmusError, match="auto, plain"):
        SystemConfig(kernels="fast").check()


SAY = "import torch; from isthmus import kernels; print(kernels.describe_kernels(torch.device('cpu')))"


def describe_in_child(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAY], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_run_without_a_compiler_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "isthmus", "run", "--data", "blocks", "--silos", "2", "--epochs", "1", "--json"]
    command += ["--set", "data.nodes=400", "--out", str(tmp_path / "run")]
    environment = os.environ | {"CC": "no-such-compiler"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    metrics = json.loads(done.stdout)
    assert any("no C compiler 'no-such-compiler'" in note for note in metrics["notes"])
    assert metrics["environment"]["kernels"].startswith("plain torch: no C compiler")


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")


@needs_compiler
def test_what_runs_is_told_and_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    cache = str(tmp_path)
    assert describe_in_child(XDG_CACHE_HOME=cache) == "compiled C"
    assert describe_in_child(CC="no-such-compiler") == "plain torch: no C compiler 'no-such-compiler' on this machine"
    assert describe_in_child(CC="false", XDG_CACHE_HOME=cache).startswith("plain torch: 'false' failed")
    (kept,) = (tmp_path / "isthmus").glob("kernels-*.so")
    kept.write_bytes(b"no library")
    assert describe_in_child(XDG_CACHE_HOME=cache) == "compiled C"
    assert kept.stat().st_size > 1000
