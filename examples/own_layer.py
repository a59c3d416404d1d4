"""Your own layer: message -> monoid -> update, registered under a name, checked by the contract test."""

from typing import Any

from torch import Tensor

import isthmus
from isthmus.graph.features import Features
from isthmus.nn import MEAN, Aggregate, Block, Edges, Layer, Linear, Message, register
from isthmus.nn.layer import at_targets
from isthmus.testing import LayerContract


class Gated(Layer):
    """y_v = W h_v + sigmoid(G h_v) * mean over neighbours u of V h_u."""

    monoid = MEAN

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True) -> None:
        """Three linear maps; ours, not torch's, so that every silo can have its own weights."""
        super().__init__(inputs, outputs, edge, bias)
        self.own = Linear(inputs, outputs, bias)
        self.gate = Linear(inputs, outputs)
        self.near = Linear(inputs, outputs, bias=False)

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """V h_u, mapped before it is gathered."""
        return Message(rows=self.near(h, block.sources))

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """The gate decides how much of the neighbours' mean gets in."""
        gate = at_targets(self.gate, h, block).sigmoid()
        return at_targets(self.own, h, block) + gate * near.value


class TestGated(LayerContract):
    """Run with pytest: several silos at once equal each alone, partial aggregates merge, and more."""

    layer = Gated


register("gated", Gated)  # from the command line: isthmus run --plugin own_layer.py --model gated ...


def main() -> Any:
    """Train it over four silos."""
    silos = isthmus.split(isthmus.load("blocks", nodes=1000), "random", 4)
    result = isthmus.fit(silos, "fedavg", "gated", settings={"train.epochs": 20})
    print(result.test.as_dict())
    return result


if __name__ == "__main__":
    main()
