"""Parts that nobody has published together, and parts that cannot go together."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.engine.settings import TrainConfig
from isthmus.graph.cut import split_graph
from isthmus.methods import catalogue
from isthmus.methods.compose import compose, tables_of
from isthmus.methods.exchange.ce_fedgnn import MovingAverage
from isthmus.methods.parts import PARTS, part_options
from isthmus.nn import MODELS
from isthmus.nn.model import LAYERS
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.number_format import NumberFormat
from isthmus.runs.config import resolve
from isthmus.runs.recipe import parse_set
from tests.helpers.command import losses as losses_of
from tests.helpers.command import metrics, refuse, succeed
from tests.helpers.small import losses, numbers, run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3
INNER = small_graph(30, 140, inner=THREE)
EXACT = "sync-sgd+fwd-bwd-le"


def run(name: str, options: dict[str, Any], graph: Any = GRAPH, **training: Any) -> Any:
    return run_method(name, graph, THREE, 3, options=options, **training)


class TestLayerwiseExchangeWithNoiseAndShortNumbers:
    """Gaussian noise, then int8, on the rows and adjoints of layer-wise exchange."""

    def test_the_chain_acts_in_order_and_saves_bytes(self) -> None:
        noisy = {"name": "gaussian,int8", "sigma": 0.1, "clip": 5.0, "sigma_adjoints": 0.1, "clip_adjoints": 1.0}
        plain, both = run(EXACT, {}), run(EXACT, {"protect": noisy})
        rows = sum(
            line["rows"] for line in both.training.wire.ledger.table().to_pylist() if line["kind"] == "embeddings"
        )
        assert both.bytes["embeddings"] == rows * (8 + 4) and plain.bytes["embeddings"] == rows * 8 * 8
        events = {
            line["event"] for line in both.training.wire.ledger.table().to_pylist() if line["kind"] == "embeddings"
        }
        assert events == {"Gaussian noise (clip 5, sigma 0.1), sent as int8/row"}
        assert (numbers(losses(plain)) - numbers(losses(both))).abs().max() > 1e-3

    def test_short_numbers_are_near_the_exact_ones_and_are_not_them(self) -> None:
        plain, short = run(EXACT, {}, optimiser="sgd"), run(EXACT, {"protect": {"name": "int8"}}, optimiser="sgd")
        apart = (numbers(losses(plain)) - numbers(losses(short))).abs().max()
        assert 1e-7 < apart < 0.05

    def test_a_chain_that_does_nothing_is_nothing(self) -> None:
        plain, off = run(EXACT, {}), run(EXACT, {"protect": {"name": "gaussian,format"}})
        assert losses(plain) == losses(off) and plain.bytes == off.bytes


class TestMovingAveragesWithSyncSGD:
    """CE-FedGNN's tables, but one optimiser state and the gradient of all silos at every step."""

    def test_without_cross_edges_and_averages_it_is_sync_sgd(self) -> None:
        mixed = run("ce-fedgnn", {"exchange": {"gamma": 1.0}, "sync": {"name": "sync-sgd"}}, INNER)
        plain = run("fedavg", {"sync": {"name": "sync-sgd"}}, INNER)
        torch.testing.assert_close(numbers(losses(mixed)), numbers(losses(plain)), rtol=1e-10, atol=0)

    def test_all_silos_hold_one_model_and_rows_cross_once_a_round(self) -> None:
        mixed = run("ce-fedgnn", {"sync": {"name": "sync-sgd"}}, epochs=4)
        assert mixed.training.learner.classifier.sets.count == 1
        table = mixed.training.wire.ledger.table().to_pylist()
        assert {line["purpose"] for line in table if line["kind"] == "gradients"} == {"step"}
        assert "round" in {line["purpose"] for line in table if line["kind"] == "embeddings"}


class TestSwiftsScheduleOnOptimES:
    """Cached rows are read by some silos at some steps; the others compute far ends from placeholders."""

    def test_always_is_optimes_and_never_is_fedavg_with_placeholders(self) -> None:
        plain, always = run("optimes", {}), run("optimes", {"schedule": {"every": 1, "share": 1.0}})
        assert losses(plain) == losses(always)
        never, fedavg = run("optimes", {"schedule": {"silos": 0}}), run("fedavg", {"exchange": {"halo": "placeholder"}})
        torch.testing.assert_close(numbers(losses(never)), numbers(losses(fedavg)), rtol=1e-12, atol=0)

    def test_half_of_the_silos_every_other_step_is_neither(self) -> None:
        some = losses(run("optimes", {"schedule": {"every": 2, "share": 0.5}}, epochs=4))
        assert (
            some != losses(run("optimes", {}, epochs=4)) != losses(run("optimes", {"schedule": {"silos": 0}}, epochs=4))
        )


@pytest.mark.parametrize("axis", PARTS)
def test_every_part_can_be_named_and_written_down(axis: str) -> None:
    """A part that was swapped in is in ``config.toml``, from which the method comes back as it was."""
    for name in PARTS[axis]:
        method = compose(catalogue.get("fedavg"), {axis: {"name": name}})
        again = compose(catalogue.get("fedavg"), tables_of(method))
        assert again == method, name


def test_options_are_checked_against_the_part_that_was_swapped_in() -> None:
    assert compose(catalogue.get("fedavg"), {"exchange": {"name": "ce-fedgnn", "gamma": 0.25}}).last.exchange == (
        MovingAverage(gamma=0.25)
    )
    with pytest.raises(
        IsthmusError, match="no option exchange.gamma; on the axis exchange it has exchange.scored_with"
    ):
        compose(catalogue.get("ce-fedgnn"), {"exchange": {"name": "optimes", "gamma": 0.25}})
    with pytest.raises(IsthmusError, match="Did you mean 'optimes'"):
        compose(catalogue.get("fedavg"), {"exchange": {"name": "optimus"}})


def test_a_chain_is_written_in_order_and_options_find_their_mechanism() -> None:
    asked = parse_set(["protect=gaussian,int8", "protect.sigma=2"])
    assert resolve({"method": "optimes", **asked}).method.protect == (Gaussian(sigma=2.0), NumberFormat("int8"))
    for wrong, why in (
        ("int8,gaussian", "must come before it"),
        ("int8,bfloat16", "once"),
        ("gaussian,gaussian", "once"),
    ):
        with pytest.raises(IsthmusError, match=why):
            resolve({"method": "optimes", **parse_set([f"protect={wrong}"])})
    implied = parse_set(["protect.format=bfloat16", "protect.sigma=2"])
    assert resolve({"method": "optimes", **implied}).method.protect == (Gaussian(sigma=2.0), NumberFormat("bfloat16"))
    with pytest.raises(IsthmusError, match="no option protect.sigma"):
        resolve({"method": "optimes", **parse_set(["protect=int8", "protect.sigma=2"])})


@pytest.mark.parametrize(
    ("method", "model", "asked", "why"),
    [
        ("fedavg", "sage", {"schedule": {"every": 3}}, "nothing to schedule"),
        ("fedgcn", "sage", {}, "linear in the features"),
        ("fedavg", "gat", {"exchange": {"name": "swift"}}, "cannot take partial aggregates"),
        ("llcg-every-step", "gcn", {"protect": {"clip_gradients": 1.0}}, "one set of parameters"),
        ("sync-sgd", "gcn", {"sync": {"weights": "silos"}}, "needs train.batches=local"),
    ],
)
def test_parts_that_cannot_go_together_are_refused_before_data_is_read(
    method: str, model: str, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(IsthmusError, match=why):
        resolve({"method": method, "data": {"name": "/no/such/folder"}, "model": {"name": model}, **asked})
    with pytest.raises(IsthmusError, match=why):
        compose(catalogue.get(method), asked).check(MODELS[model], TrainConfig())


def test_fit_takes_methods_and_parts_of_ones_own() -> None:
    silos = split_graph(GRAPH, THREE, 3)
    short = {"train.epochs": 3}
    named = isthmus.fit(silos, "fedavg", exchange="optimes", settings=short)
    given = isthmus.fit(silos, "fedavg", exchange=PARTS["exchange"]["optimes"](), settings=short)
    assert losses(named) == losses(given) == losses(isthmus.fit(silos, "optimes", settings=short))
    whole = isthmus.fit(
        silos, catalogue.get("optimes"), protect=(Gaussian(clip=1.0), NumberFormat("int8")), settings=short
    )
    chain = isthmus.fit(silos, "optimes", protect="gaussian,int8", settings={**short, "protect.clip": 1.0})
    assert losses(whole) == losses(chain) != losses(named)
    with pytest.raises(IsthmusError, match="Unknown part 'sink'"):
        isthmus.fit(silos, "fedavg", sink="fedavg")


EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--data", "blocks", "--set", "data.nodes=120", "--set", "data.degree=4", "--silos", 3, "--epochs", 4)


def lines_of_code(path: Path) -> int:
    """The lines of a file without imports, docstrings, comments and blank ones."""
    text = path.read_text()
    other = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        other |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    kept = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in other]
    return sum(bool(line) and not line.startswith("#") for line in kept)


@pytest.mark.usefixtures("no_report")
def test_scaffold_lives_outside_the_package_in_25_lines(tmp_path: Path) -> None:
    """With one local step from the same start it is FedAvg; later its corrections show. Its bytes are counted."""
    assert lines_of_code(EXAMPLES / "scaffold.py") == 25  # as the README says
    plugin = ("--plugin", EXAMPLES / "scaffold.py")
    sgd = ("--set", "train.optimiser=sgd", "--set", "train.lr=0.1")
    succeed("run", *SMALL, *sgd, "--method", "scaffold", *plugin, "--out", tmp_path / "scaffold")
    succeed("run", *SMALL, *sgd, "--method", "fedavg", "--out", tmp_path / "fedavg")
    mine, theirs = losses_of(tmp_path / "scaffold"), losses_of(tmp_path / "fedavg")
    assert mine[:2] == pytest.approx(theirs[:2], rel=1e-6) and mine[2:] != theirs[2:]
    sizes = metrics(tmp_path / "scaffold")["bytes"]
    assert sizes["gradients"] == sizes["parameters"]  # a control variate for every parameter, up and down
    mixed = ("--method", "optimes", "--set", "sync=scaffold", *plugin)
    ran, planned = succeed("run", *SMALL, *mixed, "--out", tmp_path / "mixed"), succeed("plan", *SMALL, *mixed)
    for told in (ran.out, ran.err, planned.out):  # a run goes by what it is, not by the method that it was made of
        assert "optimes, sync=scaffold" in told
    assert "scaffold" in (tmp_path / "mixed" / "config.toml").read_text()


@pytest.fixture
def models_as_before() -> Iterator[None]:
    """Layers and models that a test registers are gone after it."""
    before = dict(LAYERS), dict(MODELS)
    yield
    for known, then in zip((LAYERS, MODELS), before, strict=True):
        known.clear()
        known.update(then)


@pytest.mark.usefixtures("no_report", "models_as_before")
def test_a_layer_from_outside_the_package_is_a_model_on_the_command_line(tmp_path: Path) -> None:
    plugin = ("--plugin", EXAMPLES / "own_layer.py")
    succeed("run", *SMALL, "--model", "gated", *plugin, "--out", tmp_path / "gated")
    assert metrics(tmp_path / "gated")["model"] == "gated"


@pytest.mark.hosts
@pytest.mark.usefixtures("no_report")
def test_hosts_load_plug_ins_too(tmp_path: Path) -> None:
    plugin = ("--plugin", EXAMPLES / "scaffold.py")
    one, four = tmp_path / "one", tmp_path / "four"
    for out, hosts in ((one, 1), (four, 4)):
        command = ("run", *SMALL, "--method", "scaffold", "--dtype", "float64", "--hosts", hosts, *plugin, "--out", out)
        succeed(*command)
    assert losses_of(four) == pytest.approx(losses_of(one), rel=1e-11)


def test_a_plug_in_that_is_not_there_or_breaks_says_so(tmp_path: Path) -> None:
    refuse("run", *SMALL, "--plugin", tmp_path / "none.py", says=["There is no plug-in"])
    (tmp_path / "broken.py").write_text("raise ValueError('half done')")
    refuse("methods", "--plugin", tmp_path / "broken.py", says=["broken.py", "ValueError: half done"])


def test_options_of_parts_are_values_that_a_recipe_can_hold() -> None:
    for axis in PARTS:
        for name, make in PARTS[axis].items():
            for option, value in part_options(make()).items():
                assert isinstance(value, str | int | float | bool | tuple), (axis, name, option)
