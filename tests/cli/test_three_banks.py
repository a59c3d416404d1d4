"""The walk of examples/three-banks, on another seed and another mess: every command of its page, in order."""

import csv
import importlib.util
import os
import re
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from isthmus.core.files import is_folder
from tests.helpers.command import isthmus, metrics, succeed
from tests.helpers.hosts import on_hosts

EX = Path(__file__).parents[2] / "examples" / "three-banks"
MESS = "utf16,truth,dashes,shuffled,payer,commas,words"
NUMBERS = {12: "Twelve", 13: "Thirteen", 14: "Fourteen"}

pytestmark = pytest.mark.hosts


def commands() -> list[list[str]]:
    """The words of every command of the page."""
    blocks = re.findall(r"```sh\n(.*?)```", (EX / "README.md").read_text(), re.DOTALL)
    return [line.rstrip(" &").split() for block in blocks for line in block.splitlines()]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EX / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def as_bank(host: int, folder: str, each: list[list[str]], port: str) -> str:
    """One of three banks runs its own command of the page."""
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name)
    os.chdir(folder)
    return succeed(*[re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", word) for word in each[host]]).out


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The folder of the walk after all of its commands, and what they printed, by their first two words."""
    root = tmp_path_factory.mktemp("walk")
    recipe = (EX / "bank.toml").read_text().replace("epochs = 200", "epochs = 5").replace("hidden = 32", "hidden = 8")
    (root / "bank.toml").write_text(recipe)
    said: dict[str, Any] = {}
    apart: list[list[str]] = []
    with pytest.MonkeyPatch.context() as here:
        here.chdir(root)
        for words in commands():
            words = [word.replace("EX/bank.toml", "bank.toml").replace("EX", str(EX)) for word in words]
            key = " ".join(words[:2]) if words[0] == "isthmus" else Path(words[1]).stem
            if words[0] == "python":
                small = ["--seed", "11", "--mess", MESS, "--accounts", "120", "--payments", "600"]
                extra = small if key == "make_exports" else []
                with patch.object(sys, "argv", [*words[1:], *extra]):
                    script(key).main()
            elif "--meet" in words:
                apart.append(words[1:])
                if len(apart) == 3:
                    said[f"{key}, apart"] = on_hosts(3, as_bank, str(root), apart, free_port())
                    apart = []
            else:
                said[f"{key}, {words[-1]}" if key == "isthmus run" else key] = succeed(*words[1:]).out
    return {"root": root, **said}


def test_the_page_says_how_many_commands_there_are() -> None:
    assert f"{NUMBERS[len(commands())]} commands" in (EX / "README.md").read_text()


def test_the_check_finds_nothing_that_would_refuse_a_run(walk: dict[str, Any]) -> None:
    said = walk["isthmus check"]
    assert "Nothing here would refuse a run." in said and "problem" not in said
    for words in ("as UTF-16", "decimal comma", "semicolons", "cells such as '-'"):
        assert words in said, words


def test_three_processes_learn_what_one_process_with_all_parts_does(walk: dict[str, Any]) -> None:
    root = walk["root"]
    found = {name: metrics(root / "runs" / name) for name in ("alpen", "bern", "chur", "centralised", "local")}
    assert found["bern"]["test"]["pr_auc"] == found["alpen"]["test"]["pr_auc"] == found["chur"]["test"]["pr_auc"]
    assert found["alpen"]["test"]["pr_auc"] == pytest.approx(found["centralised"]["test"]["pr_auc"], abs=0.02)
    assert sum(found["local"]["seeds_scored"]) == sum(found["alpen"]["seeds_scored"])
    assert (
        found["alpen"]["labels"] == ["0", "1"]
        and "channel=app" in " ".join(found["bern"]["schema"]["edge_feature_names"]).lower()
    )
    for name in ("alpen", "bern", "chur"):
        mine = found[name]["alerts"]["silos"]
        assert list(mine) == [name] and 0 <= mine[name]["base_rate"] <= 1


def test_the_comparison_has_all_three(walk: dict[str, Any]) -> None:
    for name in ("local", "sync-sgd+fwd-bwd-le", "centralised"):
        assert name in walk["isthmus compare"]
    assert is_folder(walk["root"] / "runs" / "comparison")


def test_every_payment_of_tomorrow_has_a_score_and_its_own_id(walk: dict[str, Any]) -> None:
    read = script("alerts").read
    for bank in ("alpen", "bern", "chur"):
        payments = read(walk["root"] / "walk" / "tomorrow" / bank / "edges.csv")
        with open(walk["root"] / f"{bank}.csv") as file:
            scored = list(csv.DictReader(file))
        assert sorted(row["id"] for row in scored) == sorted(row["id"] for row in payments)
        ends = {row["id"]: (row["source"], row["target"]) for row in payments}
        assert all((row["source"], row["target"]) == ends[row["id"]] for row in scored)


def test_both_banks_of_a_payment_give_it_one_score(walk: dict[str, Any]) -> None:
    each = []
    for bank in ("alpen", "bern"):
        with open(walk["root"] / f"{bank}.csv") as file:
            each.append({row["id"]: float(row["probability:1"]) for row in csv.DictReader(file)})
    common = each[0].keys() & each[1].keys()
    assert common and all(each[0][name] == pytest.approx(each[1][name], abs=1e-5) for name in common)


def test_the_sheet_is_of_the_bank_that_signs(walk: dict[str, Any]) -> None:
    sheet = (walk["root"] / "runs" / "alpen" / "disclosure.html").read_text()
    assert "disclosure.html" in walk["isthmus disclose"] and all(bank in sheet for bank in ("alpen", "bern", "chur"))


def test_alerts_are_rows_of_the_banks_own_export(walk: dict[str, Any]) -> None:
    with open(walk["root"] / "alerts-alpen.csv") as file:
        alerts = list(csv.DictReader(file))
    scores = [float(row["score"]) for row in alerts]
    assert len(alerts) == 10 and scores == sorted(scores, reverse=True) and all(row["amount"] for row in alerts)


def test_words_that_the_model_has_never_seen_are_counted(walk: dict[str, Any], tmp_path: Path) -> None:
    bank = walk["root"] / "walk" / "tomorrow" / "chur"
    part = tmp_path / "parts" / "chur"
    part.mkdir(parents=True)
    (tmp_path / "parts" / "federation.toml").write_text('silos = ["alpen", "bern", "chur"]\n')
    for name in ("nodes.csv", "silo.toml"):
        (part / name).write_bytes((bank / name).read_bytes())
    raw = (bank / "edges.csv").read_bytes()
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    text = re.sub(r"(?i)\bwire\b", "crypto", raw.decode(encoding))
    (part / "edges.csv").write_bytes(text.encode(encoding))
    alone = ("--data", tmp_path / "parts", "--silo", "chur", "--out", tmp_path / "x.csv")
    told = isthmus("score", walk["root"] / "runs" / "chur", *alone)
    assert told.code == 0, told.err
    assert "have words in 'channel' that the model has never seen ('crypto')" in told.out
