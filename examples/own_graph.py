"""Your own graph from Python: a PyG Data object and a vector that says who owns which node."""

import torch
from torch_geometric.data import Data

import isthmus


def transfers(customers: int = 600, seed: int = 0) -> Data:
    """Customers of three banks; who deals with fraudsters is often one."""
    draw = torch.Generator().manual_seed(seed)
    fraud = torch.rand(customers, generator=draw) < 0.3
    source = torch.randint(customers, (8 * customers,), generator=draw)
    target = torch.randint(customers, (8 * customers,), generator=draw)
    keep = (fraud[source] == fraud[target]) | (torch.rand(len(source), generator=draw) < 0.2)
    features = torch.randn(customers, 8, generator=draw) + 0.3 * fraud[:, None]
    return Data(x=features, y=fraud.long(), edge_index=torch.stack([source, target])[:, keep])


def main() -> dict[str, float]:
    """Train with three methods on the same silos, and return the test scores."""
    data = transfers()
    owner = torch.arange(data.num_nodes) % 3  # bank 0, 1 or 2
    silos = isthmus.split(isthmus.from_pyg(data, labels=["honest", "fraud"]), owner)
    scores = {}
    for method in ("local", "fedavg", "centralised"):
        result = isthmus.fit(silos, method, "sage", settings={"train.epochs": 30, "model.hidden": 32})
        scores[method] = result.test.as_dict()["pr_auc"]
        print(f"{method:12} PR-AUC {scores[method]:.3f}  bytes {sum(result.bytes.values()):,}")
    return scores


if __name__ == "__main__":
    main()
