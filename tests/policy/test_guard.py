"""Policies at the door: what they refuse does not leave, nothing leaves half, and what they allow is as it was."""

from typing import Any

import pytest
import torch

from isthmus.core.kinds import SERVER, Kind
from isthmus.graph.graph import Schema
from isthmus.launch.host import open_run
from isthmus.launch.trial import foresee, stand_in
from isthmus.policy.foreseen import Collector, permitted, refusals
from isthmus.policy.guard import Guard, Party
from isthmus.policy.reading import parse_policy, read_policy
from isthmus.policy.rules import Rules
from isthmus.protect.base import Chain
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.runs.config import resolve
from isthmus.wire.local import LocalWire
from isthmus.wire.policy import Refused
from tests.helpers.small import losses, owners, run_method, small_graph

NAMES = ("alpen", "bern", "chur")
NODES = Schema(5, ("a", "b", "c"))


def guarded(text: str, silo: int = 1, protect: Chain | None = None) -> LocalWire:
    """A wire of three silos, one of which has a policy."""
    wire = LocalWire(3, protect)
    wire.noise = Noise(secrets_from_seed(0, wire.mine))
    wire.policy = Guard({silo: Party(NAMES[silo], parse_policy(text, "policy.toml"))})
    return wire


def run(name: str, wire: LocalWire | None = None, **options: Any) -> list[float]:
    model = "gcn" if name == "fedgcn" else "sage"
    some: dict[str, Any] = {"model_options": {"layers": 2}, "epochs": 2, **options}
    return losses(run_method(name, small_graph(30, 140), owners(3), 3, model, wire=wire, **some))


CASES = [
    ("fedavg", "parameters", "server"),
    ("sync-sgd", "gradients", "server"),
    ("sync-sgd+fwd-bwd-le", "embeddings", "silos"),
    ("sync-sgd+fwd-bwd-le", "adjoints", "silos"),
    ("ce-fedgnn", "embeddings", "silos"),
    ("optimes", "embeddings", "silos"),
    ("fedgcn", "aggregates", "silos"),
    ("swift-fedgnn", "partials", "server"),
    ("fedgnn-g", "adjoints", "server"),
    ("llcg-every-step", "features", "server"),
    ("llcg", "labels", "server"),
    ("fed-pub", "parameters", "server"),
    ("fedpergnn", "gradients", "server"),
    ("feddep-no-generator", "parameters", "server"),
    ("hifgl", "embeddings", "silos"),
    ("local", "metrics", "server"),
]


@pytest.mark.parametrize(("name", "kind", "to"), CASES)
def test_what_one_silo_refuses_does_not_leave_any(name: str, kind: str, to: str) -> None:
    wire = guarded(f"[leave.{kind}]\nto = []")
    with pytest.raises(Refused, match=rf"The policy of bern refuses {kind}: .*\(\[leave.{kind}\] to\)\.") as error:
        run(name, wire)
    assert error.value.told == f"The policy of bern refuses {kind} by its rule [leave.{kind}] to."
    left = [line for line in wire.ledger.table().to_pylist() if line["kind"] == kind]
    assert [line for line in left if line["sender"] != "server"] == []
    assert ("server" if to == "silos" else "silo-0") not in {line["sender"] for line in left}


@pytest.mark.parametrize("name", ["fedavg", "sync-sgd+fwd-bwd-le", "swift-fedgnn", "hifgl"])
def test_what_is_allowed_is_computed_as_without_a_policy(name: str) -> None:
    wire = guarded('[leave]\nothers = "refuse"\n' + "".join(f"[leave.{kind}]\n" for kind in Kind))
    assert run(name, wire) == run(name)


def test_only_the_silo_whose_policy_it_is_refuses() -> None:
    to_one = guarded('[leave.features]\nto = ["silo-0"]')
    to_one.post(Kind.FEATURES, {(0, 2): torch.ones(2), (1, 0): torch.ones(2), (SERVER, 2): torch.ones(1)})
    with pytest.raises(Refused, match="would go to silo-2"):
        to_one.post(Kind.FEATURES, {(1, 2): torch.ones(2)})


def test_of_what_would_leave_together_nothing_leaves_and_no_noise_is_drawn() -> None:
    wire = guarded(
        '[leave.parameters]\nto = ["server"]', protect=Chain((Gaussian(clip_parameters=1.0, sigma_parameters=1.0),))
    )
    letters = {(0, 1): torch.ones(1, 2), (1, SERVER): torch.ones(1, 2), (1, 0): torch.ones(1, 2)}
    with pytest.raises(Refused, match="silo-0"):
        wire.post(Kind.PARAMETERS, letters)
    assert wire.ledger.by_kind() == {} and wire.noise.draws == 0 and wire.releases.state == {}


def test_protection_is_judged_by_what_a_message_will_have() -> None:
    text = "[leave.parameters]\nprotect = [{ gaussian = { ratio = 1.0 } }]"
    with pytest.raises(Refused, match="they would leave Gaussian noise .clip 1, sigma 0.5., and must have gaussian"):
        run("fedavg", guarded(text), options={"protect": {"clip_parameters": 1.0, "sigma_parameters": 0.5}})
    run("fedavg", guarded(text), options={"protect": {"clip_parameters": 1.0, "sigma_parameters": 1.0}})


def test_bounded_steps_protect_parameters_that_leave_as_they_are() -> None:
    text, steps = "[leave.parameters]\nprotect = [{ dp-sgd = { sigma = 1.0 } }]", {"name": "dp-sgd", "seed_clip": 1.0}
    run("fedavg", guarded(text), options={"protect": {**steps, "seed_sigma": 1.0}})
    with pytest.raises(Refused, match="dp-sgd .sigma at least 1."):
        run("fedavg", guarded(text), options={"protect": {**steps, "seed_sigma": 0.5}})


def test_shares_are_protection_and_their_holders_are_receivers() -> None:
    run("hifgl", guarded("[leave.embeddings]\nprotect = [{ shares = { threshold = 1 } }]"))
    with pytest.raises(Refused, match="embeddings: they would leave .*and must have shares .threshold at least 2"):
        run("hifgl", guarded("[leave.embeddings]\nprotect = [{ shares = { threshold = 2 } }]"))


@pytest.mark.parametrize(
    ("name", "kind", "least", "options"),
    [
        ("fedavg", "parameters", 3, {}),
        ("sync-sgd", "gradients", 3, {}),
        ("hifgl", "embeddings", 3, {"options": {"exchange": {"fewest": 3}}}),
        (
            "swift-fedgnn",
            "partials",
            2,
            {"options": {"protect": {"name": ["fixed-point", "shares"]}, "exchange": {"fewest": 2}}},
        ),
    ],
)
def test_sums_of_fewer_are_refused(name: str, kind: str, least: int, options: dict[str, Any]) -> None:
    run(name, guarded(f"[leave.{kind}]\nsmallest_sum = {least}"), **options)
    with pytest.raises(Refused, match=rf"would be of {least}, and must be of {least + 1} .*smallest_sum"):
        run(name, guarded(f"[leave.{kind}]\nsmallest_sum = {least + 1}"), **options)


def test_single_rows_and_partials_that_the_server_reads_are_sums_of_one() -> None:
    for name, kind in (("sync-sgd+fwd-le", "embeddings"), ("swift-fedgnn", "partials")):
        with pytest.raises(Refused, match="the smallest sum would be of 1, and must be of 2"):
            run(
                name,
                guarded(f"[leave.{kind}]\nsmallest_sum = 2"),
                options={"exchange": {"fewest": 2}} if kind == "partials" else {},
            )


FORESEEN = [
    "fedavg",
    "ce-fedgnn",
    "swift-fedgnn",
    "llcg",
    "hifgl",
    "fedsage",
    "feddep-no-prototypes",
    "sync-sgd+fwd-bwd-le",
]


@pytest.mark.parametrize("name", FORESEEN)
def test_a_trial_on_a_stand_in_foresees_what_a_run_sends(name: str) -> None:
    told = foresee(resolve({"method": name, "model": {"hidden": 8}}), NODES, open_run)
    wire = LocalWire(3)
    run(name, wire)
    sent = {
        (line["kind"], line["receiver"] == "server")
        for line in wire.ledger.table().to_pylist()
        if line["sender"] != "server"
        and not line["sender"].startswith("devices")
        and not line["receiver"].startswith("devices")
    }
    assert not told.unknown
    assert sent <= {(each.kind.value, each.to == "server") for each in told.demands}


def test_hosts_also_hand_in_their_ledgers() -> None:
    kinds = [
        {
            each.kind
            for each in foresee(resolve({"method": "local", "system": {"hosts": hosts}}), NODES, open_run).demands
        }
        for hosts in (1, 3)
    ]
    assert kinds[1] - kinds[0] == {Kind.LEDGER}


def test_a_trial_that_cannot_be_made_says_why_and_refuses_nothing() -> None:
    told = foresee(resolve({"method": "swift-fedgnn"}), Schema(5, ("a", "b"), target="edge"), open_run)
    assert "Labels lie on edges" in told.unknown and told.demands == []


def test_the_stand_in_has_a_pair_of_silos_without_common_edges() -> None:
    assert [sorted(silo.halo_owner.unique().tolist()) for silo in stand_in(NODES)] == [[1], [0, 2], [1]]


def test_refusals_that_are_foreseen_name_every_rule_at_once() -> None:
    told = foresee(resolve({"method": "sync-sgd+fwd-bwd-le", "model": {"hidden": 8}}), NODES, open_run)
    bank, near, others = read_policy("bank"), ["bern"], ["bern", "chur"]
    found = refusals(bank, told.demands, near, others, by_draws=False)
    assert {(each.what, each.rule) for each in found} >= {
        ("embeddings", "[leave.embeddings] protect"),
        ("embeddings", "[budget.row] epsilon"),
        ("adjoints", "[leave.adjoints] protect"),
    }
    only = parse_policy('[leave.embeddings]\nto = ["bern"]', "p")
    assert refusals(only, told.demands, near, others, by_draws=False) == []  # it has no edges with chur
    assert [each.rule for each in refusals(only, told.demands, ["chur"], others, by_draws=False)] == [
        "[leave.embeddings] to"
    ]
    assert refusals(Rules(), told.demands, near, others, by_draws=False) == []
    assert permitted(bank, told.demands, found) != permitted(Rules(), told.demands, [])


def test_a_collector_ends_nothing_and_tells_everything() -> None:
    wire = guarded("")
    wire.policy = collector = Collector({1: Party("bern", parse_policy('[leave]\nothers = "refuse"', "p"))})
    run("fedavg", wire)
    assert {what for _, what, _ in collector.found} >= {"schema", "ids", "parameters", "metrics"}
