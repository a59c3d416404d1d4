"""Whole jobs between two banks and a server: policies, certificates, and what each party is left with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.commands.flare.local_files import known_parties, why_file
from isthmus.core.errors import IsthmusError, PeerError
from isthmus.policy.chain_file import read_chain
from isthmus.wire.flare.known_parties import FILE, KnownParties, parse_pins
from isthmus.wire.flare.papers import Papers
from isthmus.wire.policy import Refused
from tests.helpers.kits import SILOS, Federation
from tests.helpers.papers import papers

RECIPE: dict[str, Any] = {
    "method": "sync-sgd+fwd-bwd-le",
    "data": {"name": "blocks", "nodes": 64, "degree": 3, "silos": 2},
    "model": {"name": "gcn", "hidden": 4},
    "train": {"epochs": 3},
    "system": {"timeout": 20.0},
}


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path, RECIPE)


def refused(ended: dict[str, Exception | None], rule: str) -> None:
    """bank-b's policy has ended the run; all name it and the rule, and nobody reads a value of the policy."""
    assert isinstance(ended["bank-b"], Refused) and str(ended["bank-b"]).endswith(f"({rule}).")
    for name in ("server", "bank-a"):
        told = str(ended[name])
        assert "The policy of bank-b refuses" in told and f"by its rule {rule}." in told, told
        assert "20,000" not in told and "fedprox" not in told


# ---- policies


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ("[leave.embeddings]\nto = []", "[leave.embeddings] to"),
        ('[run]\nmethods = ["fedprox"]', "[run] methods"),
        ('[run]\ncolumns = ["age"]', "[run] columns"),
        ('[run]\nstarted_by = ["bank-a"]', "[run] started_by"),
    ],
)
def test_what_a_policy_refuses_is_foreseen_and_everybody_hears_it_before_anything_crosses(
    policy: str, rule: str, federation: Federation
) -> None:
    (federation.parts["bank-b"] / "bank-b" / "policy.toml").write_text(policy)
    refused(federation.run(), rule)
    for name in ("server", *SILOS):
        run = federation.kits[name].parent / "runs" / "run"
        assert not run.exists() and "The policy of bank-b refuses" in why_file(run).read_text()


def test_a_policy_that_a_kit_names_holds_at_the_step_and_is_booked_on_its_own_disk(federation: Federation) -> None:
    """Bytes are counted as they leave, so that the run ends at a step; the part's folder has the account."""
    bound = federation.folder / "bank-b" / "bound.toml"
    bound.write_text("bytes = 20_000")
    federation.config = replace(federation.config, train=replace(federation.config.train, epochs=60))
    ended = federation.run(bank_b={"policy": str(bound)})
    refused(ended, "bytes")
    [*_, last] = read_chain(federation.parts["bank-b"] / "bank-b" / "account.jsonl")
    assert 10_000 < last["bytes"] <= 20_000
    assert not (federation.parts["bank-a"] / "bank-a" / "account.jsonl").exists()


def test_a_kit_takes_no_policy_that_cannot_be_read(federation: Federation) -> None:
    for given, match in [("nowhere.toml", "There is no policy file"), ("bad.toml", "is not valid TOML")]:
        (federation.folder / "bad.toml").write_text("[leave")
        with pytest.raises(IsthmusError, match=match):
            federation.run(bank_a={"policy": str(federation.folder / given)})


# ---- certificates


def test_everybody_is_left_with_the_certificates_and_what_policies_permit(federation: Federation) -> None:
    (federation.parts["bank-b"] / "bank-b" / "policy.toml").write_text("bytes = 50_000_000")
    assert federation.run() == {"server": None, "bank-a": None, "bank-b": None}
    for name in ("server", *SILOS):
        told = federation.metrics(name)["parties"]
        assert set(told) == {"server", *SILOS}
        for party in told:
            assert told[party]["certificate"] == Papers.of_kit(federation.kits[party]).fingerprint
        assert told["bank-a"]["permits"] == "open" and len(told["bank-b"]["permits"]) == 16
        others = {"server", *SILOS} - {name}
        known = known_parties(federation.kits[name]).fingerprints
        assert known == {party: told[party]["certificate"] for party in sorted(others)}


def test_another_certificate_than_the_known_one_is_refused_with_both_and_what_to_do(federation: Federation) -> None:
    assert federation.run("first") == {"server": None, "bank-a": None, "bank-b": None}
    before = Papers.of_kit(federation.kits["bank-b"]).fingerprint
    (federation.kits["bank-b"] / "startup" / "client.crt").write_bytes(papers("bank-b", days=(-1, 60)).chain)
    after = Papers.of_kit(federation.kits["bank-b"]).fingerprint
    ended = federation.run("second")
    for name in ("server", "bank-a"):
        assert isinstance(ended[name], PeerError)
        assert f"{after} instead of {before}" in str(ended[name]) and f"--pin bank-b={after}" in str(ended[name])
    assert "bank-b shows another certificate" in str(ended["bank-b"])  # who shows it hears of it
    assert not (federation.kits["bank-a"].parent / "runs" / "second" / "metrics.jsonl").exists()
    for name in ("server", "bank-a"):
        known_parties(federation.kits[name]).pin({"bank-b": after})
    assert federation.run("third") == {"server": None, "bank-a": None, "bank-b": None}


def test_a_pin_holds_from_the_first_meeting_on(federation: Federation) -> None:
    wrong = "SHA256:" + "AB" * 32
    ended = federation.run(bank_a={"pins": parse_pins([f"bank-b={wrong.lower().replace('sha256', 'SHA256')}"])})
    assert "instead of SHA256:AB:AB:" in str(ended["bank-a"]) and ended["bank-b"] is not None


def test_pins_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for given, match in [
        ("bank-b", "names no party"),
        ("bank-b=SHA256:12", "is no fingerprint of bank-b's certificate"),
        ("bank-b=" + "XY" * 32, "is no fingerprint"),
    ]:
        with pytest.raises(IsthmusError, match=match):
            parse_pins([given])
    for text, match in [
        ("x", "cannot be read"),
        ("x = 1", "must hold one table"),
        ("[fingerprints]\na = 1", "no fing"),
    ]:
        (tmp_path / FILE).write_text(text)
        with pytest.raises(IsthmusError, match=match):
            KnownParties(tmp_path / FILE)


# ---- jobs of others


@pytest.mark.parametrize(
    ("own", "match"),
    [
        ({"system": {"log": "elsewhere.jsonl"}}, "system.log, which is each party's own"),
        ({"data": {"folder": "elsewhere"}}, "data.folder, which is each party's own"),
        ({"system": 3}, "system.system, which is each party's own"),
        ({"federation": {"absent": "stale"}}, "federation.absent=stale does not work over FLARE"),
    ],
)
def test_a_job_that_says_what_no_job_can_say_is_refused(
    own: dict[str, Any], match: str, federation: Federation
) -> None:
    from isthmus.commands.flare.job import recipe_of
    from isthmus.commands.flare.job_files import FlareJob
    from isthmus.commands.flare.local_files import prepare_kit
    from isthmus.commands.flare.party import FlareParty

    kit = federation.kits["bank-a"]
    prepare_kit(kit, federation.parts["bank-a"], federation.folder / "runs")
    recipe = {**recipe_of(federation.config), **own}
    with pytest.raises(IsthmusError, match=match):
        _ = FlareParty(kit, FlareJob.read(json.dumps(json.loads(FlareJob("run", recipe, SILOS).words()))), "1").config
