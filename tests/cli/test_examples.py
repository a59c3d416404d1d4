"""The examples run as they stand."""

import runpy
from pathlib import Path

from isthmus.nn import LAYERS, MODELS

EXAMPLES = Path(__file__).parents[2] / "examples"
TestGated = runpy.run_path(str(EXAMPLES / "own_layer.py"))["TestGated"]  # the contract, for the example's own layer


def test_own_graph_gains_from_what_lies_beyond_the_boundary() -> None:
    scores = runpy.run_path(str(EXAMPLES / "own_graph.py"))["main"]()
    assert scores["centralised"] > scores["local"] + 0.05


def test_own_layer_trains_under_its_own_name() -> None:
    try:
        result = runpy.run_path(str(EXAMPLES / "own_layer.py"))["main"]()
        assert result.training.stage.site.net.config.name == "gated"
        losses = [line["loss"] for line in result.history]
        assert losses[-1] < losses[0]
    finally:
        LAYERS.pop("gated", None)
        MODELS.pop("gated", None)
