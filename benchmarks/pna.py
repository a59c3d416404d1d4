"""Multi-PNA's layers: PyG's PNAConv, plain torch over sorted edges, and ours, forward and backward.

    python benchmarks/pna.py --json docs/results/pna.json
    python benchmarks/pna.py --device cuda --json docs/results/pna-gpu.json

Six layers, hidden 64, four towers, both directions, ports as edge encodings; on samples of 32 seeds (fanout
10/10/10/10/5/5) and on the whole graph of 8192 nodes. All three compute the same numbers (checked first). PyG gets only
the rows and edges that each layer needs, as its trim_to_layer would give.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import Job, as_child, forget_peak, in_child, peak_mb, record

LAYERS, HIDDEN, TOWERS, FANOUT, NODES = 6, 64, 4, (10, 10, 10, 10, 5, 5), 8192
VARIANTS = ("pyg", "plain", "ours")


def sampled_blocks(job: Job) -> list[list[Any]]:
    """Blocks of a few batches: lists of layers, widest first."""
    import torch

    from isthmus.data.patterns import patterns
    from isthmus.engine.settings import TrainConfig
    from isthmus.federation.federation import open_federation
    from isthmus.graph.cut import split_graph
    from isthmus.methods.catalogue import get
    from isthmus.nn.model import MODELS
    from isthmus.train.training import Training
    from isthmus.wire.local import LocalWire

    graph = patterns(NODES)
    federation = open_federation(LocalWire(1), split_graph(graph, torch.zeros(graph.n, dtype=torch.int64), 1))
    settings = TrainConfig(epochs=1, batch=32, fanout=FANOUT)
    training = Training(federation, get("centralised"), MODELS["multi-pna"], settings, device=job["device"])
    maker, drawn = training.stage.passes.across["train"], training.stage.epoch_seeds(training.progress)
    if job["graph"] == "whole":
        maker.batcher.ego = False
        seeds = next(drawn)
        return [maker.batcher.whole(seeds, step).blocks for step in range(job["steps"])]
    return [maker.make(seeds, i).batch.blocks for i, seeds in zip(range(job["steps"]), drawn, strict=False)]


def build_ours(dtype: Any, device: str) -> Any:
    import torch

    from isthmus.nn import PNA, Directed, EdgeEncoder
    from isthmus.nn.sets import reset

    encoder = EdgeEncoder(0, 32)
    layers = [Directed(PNA, HIDDEN, HIDDEN, encoder.width, towers=TOWERS) for _ in range(LAYERS)]
    model = torch.nn.ModuleList([encoder, *layers])
    reset(model, 0)
    for layer in layers:
        layer.set_degree(torch.tensor([1.2]), torch.tensor([1.3]))
    return model.to(device, dtype)


def build_pyg(dtype: Any, device: str) -> Any:
    """PyG's layers with the same parameters, and the same port tables."""
    import torch
    from torch_geometric.nn import PNAConv

    ours = build_ours(dtype, "cpu")
    statistics_ = (["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"])
    made = torch.nn.ModuleList([ours[0]])
    for layer in ours[1:]:
        for side in range(2):
            conv = PNAConv(HIDDEN, HIDDEN, *statistics_, torch.ones(9), edge_dim=ours[0].width, towers=TOWERS)
            made.append(_copied(conv.to(dtype), layer.layer, side))
    return made.to(device)


def _copied(conv: Any, part: Any, side: int) -> Any:
    """Our layer's parameters of one direction, cut as PyG keeps them."""
    import torch

    own = {name: value[0, side] for name, value in part.state_dict().items()}
    with torch.no_grad():
        for t in range(TOWERS):
            columns = slice(t * HIDDEN, (t + 1) * HIDDEN)
            outputs = slice(t * HIDDEN // TOWERS, (t + 1) * HIDDEN // TOWERS)
            pre = [own[f"{name}.weight"][:, columns] for name in ("target", "source", "mix")]
            conv.pre_nns[t][0].weight.copy_(torch.cat(pre).T)
            conv.pre_nns[t][0].bias.copy_(own["target.bias"][columns])
            post = torch.cat([own["own.weight"][:, outputs], *own["post"][t].chunk(3, 1)])
            conv.post_nns[t][0].weight.copy_(post.T)
            conv.post_nns[t][0].bias.copy_(own["own.bias"][outputs])
        for mine, linear in (("out", conv.lin), ("encode", conv.edge_encoder)):
            linear.weight.copy_(own[f"{mine}.weight"].T)
            linear.bias.copy_(own[f"{mine}.bias"])
        conv.aggr_module.avg_deg_log.copy_(own["delta"])
    return conv


def forward_ours(model: Any, h: Any, blocks: list[Any]) -> Any:
    from isthmus.nn.directed import both_sides

    encoder, *layers = model
    for layer, block in zip(layers, blocks, strict=False):
        h = layer(h, block, encoder(both_sides(block))).relu()
    return h


def forward_pyg(model: Any, h: Any, blocks: list[Any]) -> Any:
    import torch

    encoder, *convs = model
    for inward, outward, block in zip(convs[::2], convs[1::2], blocks, strict=False):
        out = 0
        for conv, side in ((inward, block), (outward, block.reverse)):
            into = side.dst if side.own is None else side.own[side.dst]
            out = out + conv(h, torch.stack([side.src, into]), encoder(side).dense())
        h = block.of_targets(out).relu()
    return h


def measure(job: Job) -> Job:
    """Seconds of a forward and backward pass, and the memory it takes above what was there before."""
    import torch

    from isthmus import kernels

    kernels.choose("plain" if job["variant"] == "plain" else "auto")
    on_gpu = job["device"] == "cuda"
    dtype = torch.float32
    model = (build_pyg if job["variant"] == "pyg" else build_ours)(dtype, job["device"])
    forward = forward_pyg if job["variant"] == "pyg" else forward_ours
    batches = sampled_blocks(job)
    seconds = []
    for number, blocks in enumerate(batches):
        h = torch.randn(len(blocks[0].sources), HIDDEN, generator=torch.Generator().manual_seed(1)).to(job["device"])
        if number == 1:  # the first batch warms up
            before = _start_memory(on_gpu)
        started = time.perf_counter()
        forward(model, h.requires_grad_(), blocks).square().sum().backward()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        model.zero_grad(set_to_none=True)
    peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else peak_mb()
    rows = [len(block.targets) for block in batches[-1]], [len(block.src) for block in batches[-1]]
    answer = {"seconds": statistics.median(seconds[1:]), "memory_mb": peak - before, "rows": rows[0], "edges": rows[1]}
    return {**answer, "kernels": kernels.describe_kernels(torch.device(job["device"]))}


def _start_memory(on_gpu: bool) -> float:
    import torch

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    forget_peak()
    return peak_mb()


def check(job: Job) -> Job:
    """How far one layer is from PyG's in float64: its outputs, and gradients of rows and port tables (norms)."""
    import torch

    from isthmus import kernels

    blocks = sampled_blocks({**job, "steps": 1, "graph": "sample"})[0]
    found = {}
    for dtype in (torch.float64, torch.float32):
        for variant in VARIANTS:
            kernels.choose("plain" if variant == "plain" else "auto")
            model = (build_pyg if variant == "pyg" else build_ours)(dtype, job["device"])
            generator = torch.Generator().manual_seed(1)
            h = torch.randn(len(blocks[0].sources), HIDDEN, generator=generator, dtype=torch.float64)
            h = h.to(job["device"], dtype).requires_grad_()
            out = (forward_pyg if variant == "pyg" else forward_ours)(model, h, blocks[:1])
            out.square().sum().backward()
            found[f"{variant} {str(dtype).removeprefix('torch.')}"] = (out.detach(), h.grad, model[0].tables.grad)
    exact = found.pop("pyg float64")
    return {
        name: [float((a - b).norm() / b.norm()) for a, b in zip(each, exact, strict=True)]
        for name, each in found.items()
    }


def work(job: Job) -> Job:
    return check(job) if job["variant"] == "check" else measure(job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    base = {"device": options.device, "steps": options.steps}
    differences = in_child(sys.argv[0], {**base, "variant": "check"}, options.threads)
    differences.pop("peak_mb")
    print("relative difference to PyG's layer in float64 (outputs, gradients of rows, gradients of ports):")
    for name, (out, rows_, ports) in differences.items():
        print(f"  {name:14} {out:.1e}  {rows_:.1e}  {ports:.1e}")
    rows = []
    for graph in ("sample", "whole"):
        job = {**base, "graph": graph, "steps": options.steps if graph == "sample" else 4}
        found = {v: in_child(sys.argv[0], {**job, "variant": v}, options.threads) for v in VARIANTS}
        print(f"{graph}: targets of each layer {found['ours']['rows']}, edges {found['ours']['edges']} each way")
        for variant, answer in found.items():
            ratio = found["pyg"]["seconds"] / answer["seconds"]
            line = {"graph": graph, "variant": variant, "seconds": answer["seconds"], "times_pyg": ratio}
            rows.append({**line, "memory_mb": answer["memory_mb"], "kernels": answer["kernels"]})
            print(f"  {variant:6} {answer['seconds'] * 1e3:9.1f} ms  {ratio:5.2f} x PyG  {answer['memory_mb']:8.0f} MB")
    record(options.json, f"{options.threads} thread(s), {options.device}", differences=differences, rows=rows)


if __name__ == "__main__" and not as_child(work):
    main()
