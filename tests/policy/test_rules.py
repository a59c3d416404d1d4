"""Each rule: what it lets leave, what it refuses, and the sentence in which it does."""

import pytest

from isthmus.core.kinds import Kind
from isthmus.policy.reading import parse_policy
from isthmus.policy.rules import Leaving, Rules, RunRules
from isthmus.protect.events import (
    Bounded,
    Clipped,
    Event,
    Events,
    Formatted,
    GaussianNoise,
    LaplaceNoise,
    MaskedSums,
    NoisyGradients,
    Shared,
)


def noise(clip: float = 5.0, sigma: float = 2.0) -> GaussianNoise:
    return GaussianNoise(clip, sigma, "row", 1e-4, 50)


def asked(rule: str, events: Events = (), receiver: str = "server", fewest: int = 1) -> str:
    """What a policy with one rule for embeddings says."""
    rules = parse_policy(f"[leave.embeddings]\n{rule}", "policy.toml")
    refusal = rules.refusal(Leaving(Kind.EMBEDDINGS, receiver, events, fewest))
    assert rules.refusal(Leaving(Kind.IDS, receiver, ())) is None
    return "" if refusal is None else str(refusal.by("alpen"))


@pytest.mark.parametrize(
    ("to", "allowed", "refused"),
    [
        ('["*"]', ("server", "bank-b"), ()),
        ('["server"]', ("server",), ("bank-b",)),
        ('["silos"]', ("bank-b",), ("server",)),
        ('["bank-b", "server"]', ("bank-b", "server"), ("bank-c",)),
        ("[]", (), ("server", "bank-b")),
    ],
)
def test_to_whom(to: str, allowed: tuple[str, ...], refused: tuple[str, ...]) -> None:
    assert all(asked(f"to = {to}", receiver=name) == "" for name in allowed)
    for name in refused:
        told = asked(f"to = {to}", receiver=name)
        assert told == (
            f"The policy of alpen refuses embeddings: they may go to {to}, and would go to {name} "
            "([leave.embeddings] to)."
        )


@pytest.mark.parametrize(
    ("demand", "met", "unmet"),
    [
        ("gaussian = {}", noise(), Clipped(1.0)),
        ("gaussian = { sigma = 2 }", noise(sigma=2.0), noise(sigma=1.9)),
        ("gaussian = { clip = 5 }", noise(clip=5.0), noise(clip=5.1)),
        ("gaussian = { ratio = 0.5 }", noise(2.0, 1.0), noise(2.0, 0.9)),
        ("laplace = { scale = 1, bound = 1 }", LaplaceNoise(1.0, 1.0, "silo"), LaplaceNoise(1.1, 1.0, "silo")),
        ("clipped = { clip = 3 }", Clipped(3.0), Clipped(4.0)),
        ("clipped = { clip = 5 }", noise(), Bounded(5.0)),
        ("bounded = { bound = 2 }", Bounded(2.0), Bounded(3.0)),
        ("shares = { threshold = 2 }", Shared(2), Shared(1)),
        ("masks = { group = 64 }", MaskedSums(64), MaskedSums(63)),
        ("dp-sgd = { sigma = 1, clip = 1 }", NoisyGradients(1.0, 1.0, 1e-5), NoisyGradients(2.0, 1.0, 1e-5)),
        ('format = { formats = ["int8"] }', Formatted("int8"), Formatted("bfloat16")),
    ],
)
def test_with_which_protection(demand: str, met: Event, unmet: Event) -> None:
    rule = f"protect = [{{ {demand} }}]"
    assert asked(rule, (met,)) == "" and asked(rule, (Formatted("x"), met)) == ""
    for events in ((), (unmet,)):
        told = asked(rule, events)
        assert "([leave.embeddings] protect)" in told and f"must have {demand.split()[0]}" in told


def test_protections_are_alternatives_of_things_that_must_all_hold() -> None:
    rule = "protect = [{ gaussian = {}, format = {} }, { shares = {} }]"
    assert asked(rule, (noise(), Formatted("int8"))) == asked(rule, (Shared(1),)) == ""
    assert asked(rule, (noise(),)).endswith("must have gaussian and format or shares ([leave.embeddings] protect).")


def test_of_how_many() -> None:
    assert asked("smallest_sum = 3", fewest=3) == ""
    assert "the smallest sum would be of 2, and must be of 3 ([leave.embeddings] smallest_sum)" in asked(
        "smallest_sum = 3", fewest=2
    )


def test_kinds_that_no_table_names() -> None:
    rules = parse_policy('[leave]\nothers = "refuse"\n[leave.ids]', "policy.toml")
    assert rules.refusal(Leaving(Kind.IDS, "server", ())) is None
    refusal = rules.refusal(Leaving(Kind.LABELS, "server", ()))
    assert refusal is not None and refusal.rule == "[leave] others" and "no [leave.labels]" in refusal.reason


def test_methods_models_columns_and_who_starts() -> None:
    free, narrow = RunRules(), RunRules(("fedavg",), ("gcn",), ("amount_*", "age"), ("server", "bank-a"))
    assert free.of_method("fedavg") is free.of_model("gcn") is free.of_columns(["x"], 3) is None
    assert narrow.of_method("fedavg") is narrow.of_model("gcn") is narrow.of_starter(["bank-a", "b"]) is None
    assert narrow.of_columns(["amount_eur", "age"], 0) is None
    refused = (
        narrow.of_method("fedavg, exchange=optimes"),
        narrow.of_model("pna"),
        narrow.of_columns(["age", "iban"], 0),
        narrow.of_columns([], 12),
        narrow.of_starter(["bank-c"]),
    )
    told = [(each.rule, each.reason) for each in refused if each is not None]
    assert told == [
        ("[run] methods", 'it may be one of ["fedavg"]'),
        ("[run] models", 'it may be one of ["gcn"]'),
        ("[run] columns", 'iban would be used, and ["amount_*", "age"] may be'),
        ("[run] columns", '12 features without names would be used, and ["amount_*", "age"] may be'),
        ("[run] started_by", '["server", "bank-a"] may start one'),
    ]


def test_methods_that_put_all_data_in_one_place_pass_no_door() -> None:
    assert Rules().of_method("centralised", merged=True) is None
    refusal = parse_policy('[leave.labels]\nto = ["server"]', "p").of_method("centralised", merged=True)
    assert refusal is not None and refusal.rule == "[leave]" and "puts all data in one place" in refusal.reason


def test_other_parties_hear_the_rule_and_nothing_of_policy_or_data() -> None:
    refusal = RunRules(columns=("age",)).of_columns(["iban"], 0)
    assert refusal is not None
    assert "iban" in str(refusal.by("alpen"))
    assert refusal.by("alpen").told == "The policy of alpen refuses columns of its data by its rule [run] columns."
