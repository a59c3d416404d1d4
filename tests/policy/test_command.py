"""``isthmus policy``, and ``--policy`` of runs and plans."""

import json
from pathlib import Path

import pytest

from isthmus.data.write_parts import write_parts
from isthmus.graph.cut import split_graph
from isthmus.policy.reading import preset_text
from tests.helpers.command import SMALL, isthmus, refuse, succeed
from tests.helpers.small import owners, small_graph

pytestmark = pytest.mark.usefixtures("no_report")
DATA = [word for word in SMALL[1:] if word not in ("--epochs", 4)]


def check(*words: str | Path) -> tuple[int, dict[str, object]]:
    outcome = isthmus("policy", "check", *words, "--json")
    return outcome.code, json.loads(outcome.out)


def test_check_lists_everything_that_would_be_refused() -> None:
    code, told = check(*DATA, "--method", "sync-sgd+fwd-bwd-le", "--policy", "bank")
    rows = {(row["party"], row["what"], row["rule"]) for row in told["refused"]}
    assert code == 1 and len(rows) == 9
    assert {
        ("silo-2", "adjoints", "[leave.adjoints] protect"),
        ("silo-0", "embeddings", "[budget.row] epsilon"),
    } <= rows
    assert set(told["permits"]) == {"silo-0", "silo-1", "silo-2"} and told["parties"]["silo-0"] == "bank"
    code, told = check(*DATA, "--method", "fedavg", "--policy", "bank")
    assert (code, told["refused"]) == (0, [])
    code, told = check(*DATA, "--method", "centralised", "--policy", "bank")
    assert code == 1 and {row["rule"] for row in told["refused"]} == {"[leave]"}


def test_check_prints_a_table_and_show_a_policy() -> None:
    outcome = isthmus("policy", "check", *DATA, "--method", "fedavg", "--model", "pna", "--policy", "strict")
    assert (
        outcome.code == 1 and "[leave.parameters]" in outcome.out.replace("\n", "") and "silo-0, silo-1" in outcome.out
    )
    assert "nothing is refused" in succeed("policy", "check", *DATA, "--method", "fedavg").out
    assert succeed("policy", "show", "bank").out == preset_text("bank")
    refuse("policy", "show", "banc", says=["Unknown policy 'banc'. Did you mean 'bank'?"])


def test_a_party_checks_with_its_own_part_alone(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    write_parts(split_graph(small_graph(30, 140), owners(3), 3, ("alpen", "bern", "chur")), parts)
    (parts / "bern" / "policy.toml").write_text(
        '[run]\ncolumns = ["x*"]\nstarted_by = ["alpen"]\n[leave.embeddings]\nto = ["alpen"]'
    )
    for name in ("alpen", "chur"):
        (parts / name / "nodes.parquet").unlink()
        (parts / name / "edges.parquet").unlink()
        (parts / name / "silo.toml").unlink()
        (parts / name).rmdir()
    code, told = check("--data", parts, "--method", "sync-sgd+fwd-bwd-le")
    assert code == 1 and told["parties"] == {"bern": str(parts / "bern" / "policy.toml")}
    assert [row["rule"] for row in told["refused"]] == ["[run] columns", "[leave.embeddings] to"]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_runs_and_plans_are_refused_before_anything_is_sent(command: str, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    words = (command, *DATA, *out, "--policy")
    refuse(*words, "bank", "--method", "llcg", says=["refuses", "[leave] others"])
    refuse(*words, "strict", "--method", "llcg", says=["refuses method 'llcg'", "[run] methods"])
    refuse(*words, "strict", "--method", "fedavg", "--model", "pna", says=["model 'pna'", "[run] models"])
    refuse(*words, "nobody", "--method", "fedavg", says=["There is no policy file 'nobody'"])
    assert not (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.parametrize("command", ["run", "plan"])
def test_rules_on_bytes_and_columns_hold_for_runs_and_plans(command: str, tmp_path: Path) -> None:
    few, no_columns = tmp_path / "few.toml", tmp_path / "columns.toml"
    few.write_text("bytes = 1000")
    no_columns.write_text('[run]\ncolumns = ["nothing"]')
    words = (command, *DATA, "--out", tmp_path / "run", "--policy")
    refuse(*words, few, "--method", "fedavg", says=["refuses", "bytes, of 1,000", "(bytes)"])
    refuse(*words, no_columns, "--method", "fedavg", says=["[run] columns"])
    refuse(*words, no_columns, "--method", "centralised", says=["method 'centralised'", "[run]"])
    few.write_text("bytes = 100_000_000")
    succeed(*words, few, "--method", "fedavg")


def test_a_plan_counts_what_a_whole_run_would_spend(tmp_path: Path) -> None:
    words = (
        "plan",
        *DATA,
        "--method",
        "ce-fedgnn",
        "--policy",
        "bank",
        "--set",
        "protect.clip=1",
        "--set",
        "protect.sigma=1",
    )
    succeed(*words, "--epochs", 2)
    refuse(
        *words, "--epochs", 400, says=["the whole run", "releases of one row would make epsilon", "there is room for"]
    )


def test_a_policy_is_named_nowhere_but_on_its_own_disk(tmp_path: Path) -> None:
    policy = tmp_path / "secret-policy.toml"
    policy.write_text('[leave.labels]\nto = ["server"]')
    succeed(*SMALL, "--method", "fedavg", "--policy", policy, "--out", tmp_path / "run")
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"secret-policy" in path.read_bytes()]
    assert kept == []


@pytest.mark.hosts
def test_silos_of_parts_have_policies_of_their_own_and_hosts_are_told_of_those_without(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    write_parts(split_graph(small_graph(30, 140), owners(3), 3, ("alpen", "bern", "chur")), parts)
    words = ("run", "--data", parts, "--method", "fedavg", "--epochs", 1, "--set", "model.hidden=4")
    succeed(*words, "--hosts", 2, "--out", tmp_path / "one")
    notes = json.loads((tmp_path / "one" / "metrics.json").read_text())["notes"]
    assert sum("No policy.toml in the folders of" in note for note in notes) == 2  # a note of each host
    (parts / "chur" / "policy.toml").write_text('[leave.parameters]\nto = ["alpen"]')
    refuse(*words, "--policy", "open", "--out", tmp_path / "two", says=["The policy of chur refuses parameters"])


def test_spent_adds_up_runs_and_checks_the_chain(tmp_path: Path) -> None:
    noise = ("--set", "protect.clip=1", "--set", "protect.sigma=3")
    for seed in (0, 1):
        succeed(
            *SMALL, "--method", "ce-fedgnn", *noise, "--policy", "bank", "--seed", seed, "--out", tmp_path / str(seed)
        )
    first, *_ = json.loads(succeed("policy", "spent", tmp_path / "accounts", "--json").out)
    [row] = first["units"]
    assert (first["party"], first["runs"], row["unit"], row["budget"]) == ("silo-0", 2, "row", 100.0)
    assert row["releases"][0]["releases"] > 2 and row["releases"][0]["room"] > 0 and 0 < row["epsilon"] < 100
    assert "room for" in succeed("policy", "spent", tmp_path / "accounts" / "silo-1.jsonl").out
    account = tmp_path / "accounts" / "silo-0.jsonl"
    account.write_bytes(account.read_bytes().replace(b'"releases": 1', b'"releases": 0', 1))
    refuse("policy", "spent", account, says=["is damaged: line 2"])
    refuse("policy", "spent", tmp_path / "nowhere", says=["There is no account in"])
