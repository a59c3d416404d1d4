"""isthmus disclose: a plan promises what its run then does; what cannot be disclosed is refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import SMALL, refuse, succeed
from tests.helpers.reports import THREE, make_run, read

pytestmark = pytest.mark.usefixtures("no_report")

OPTIONS = SMALL[1:]
NOISE = tuple(f"protect.{what}_{kind}=1" for what in ("clip", "sigma") for kind in ("parameters", "gradients"))
METHODS: dict[str, tuple[Any, ...]] = {
    "fedavg": ("--method", "fedavg"),
    "rows and derivatives": ("--method", "sync-sgd+fwd-bwd-le"),
    "noise everywhere": ("--method", "ce-fedgnn", "--set", "protect.clip=1", "--set", "protect.sigma=2",
                         *(x for each in NOISE for x in ("--set", each))),
    "sums of features": ("--method", "fedgcn", "--model", "gcn"),
    "devices": ("--method", "hifgl"),
    "drawn": ("--method", "swift-fedgnn", "--set", "train.batch=8", "--set", "train.fanout=2"),
    "two phases": ("--method", "feddep", "--set", "phase.encode.epochs=2"),
    "nothing": ("--method", "local"),
    "all in one place": ("--method", "centralised"),
}  # fmt: skip


def sheet(*arguments: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(succeed("disclose", *arguments, "--json").out)
    return told


@pytest.mark.parametrize("case", METHODS)
def test_a_plan_names_the_recipients_and_kinds_of_its_run(case: str, tmp_path: Path) -> None:
    options = (*OPTIONS, *METHODS[case])
    plan = tmp_path / "plan.json"
    plan.write_text(succeed("plan", *options, "--json").out)
    succeed("run", *options, "--out", tmp_path / "run")
    before, after = sheet(plan), sheet(tmp_path / "run")
    for part in ("leaving", "beside"):
        told, did = ({each["kind"]: each for each in made[part]} for made in (before, after))
        assert list(told) == list(did)
        for kind, each in did.items():
            same = {key: value for key, value in told[kind].items() if key not in ("messages", "rows", "bytes")}
            same |= {key: each[key] for key in ("recovered", "estimated", "epsilon", "messages", "rows", "bytes")}
            assert same == each
            assert told[kind]["estimated"] or (told[kind]["bytes"], told[kind]["rows"]) == (each["bytes"], each["rows"])
            assert told[kind]["epsilon"] in (each["epsilon"], "not known")
    assert before["planned"] and not after["planned"] and before["unknown"] and not after["unknown"]
    assert [each["name"] for each in before["parties"]] == [each["name"] for each in after["parties"]]
    assert (before["signatures"], before["columns"]) == (after["signatures"], after["columns"])
    assert before["hashes"]["config.toml"] == after["hashes"]["config.toml"]
    assert read(Path(before["page"])).text.count("not known before the run") >= 2


def test_a_recipe_is_planned_and_disclosed_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration of a run is a recipe of it."""
    succeed("run", *OPTIONS, "--out", tmp_path / "run")
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes((tmp_path / "run" / "config.toml").read_bytes())
    monkeypatch.chdir(tmp_path)
    before, after = sheet("recipe.toml", "--purpose", "to find <fraud>"), sheet("run", "--out", "x/after.html")
    assert before["page"] == "recipe-disclosure.html" and after["page"] == "x/after.html"
    assert before["hashes"]["config.toml"] == after["hashes"]["config.toml"]
    assert before["about"][0] == {"term": "Purpose", "text": "to find <fraud>", "blank": False}
    assert "to find <fraud>" in read(tmp_path / before["page"]).text
    changed = sheet("recipe.toml", "--set", "train.epochs=2")
    assert {"term": "Length", "text": "2 epochs", "blank": False} in changed["about"]
    assert changed["hashes"] != before["hashes"]


def test_what_the_audit_recovered_stands_on_the_sheet_and_the_first_screen(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed("run", *OPTIONS, "--method", "sync-sgd+fwd-bwd-le", "--out", folder)
    assert {each["recovered"] for each in sheet(folder)["leaving"]} == {"not audited"}
    succeed("audit", folder, "--deepest", 0, "--sigma", "0", "--targets", 8)
    found = sheet(folder)
    rows = {each["kind"]: each["recovered"] for each in found["leaving"]}
    assert rows["embeddings"].startswith("features of nodes, error < 0.1 % of a guess's")
    assert rows["gradients"] == "no attack read it; not tried: gradient inversion, membership inference"
    assert "The audit recovered features of nodes from them" in found["verdict"]
    assert "gradient inversion, from gradients" in found["not_tried"]
    succeed("report", folder)
    text = read(folder / "report.html").text.replace("\u00a0", " ")
    first = text.partition("How good the model is")[0]
    assert "The audit recovered features of nodes from them, with an error of < 0.1 % of a guess's" in first
    assert "not cross" not in first


def test_forgotten_rows_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed("run", *OPTIONS, "--method", "optimes", "--out", folder)
    assert "released.safetensors (rows as they left last)" in sheet(folder)["retention"][0]["text"]
    succeed("forget", folder)
    assert "was deleted (20" in sheet(folder)["retention"][0]["text"]
    (folder / "forgotten.json").write_text("{}")
    refuse("disclose", folder, says=["forgotten.json", "damaged", "isthmus forget"])


@pytest.mark.parametrize("name", ["metrics.json", "ledger.parquet", "config.toml", "audit.json"])
@pytest.mark.parametrize("content", [b"", b"[", b"\xff\x00", b"[]"])
def test_damaged_files_of_a_run_are_named(name: str, content: bytes, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE)
    (folder.path / name).write_bytes(content)
    if not (name == "config.toml" and content == b""):
        refuse("disclose", folder.path, says=[name])


@pytest.mark.parametrize("name", ["metrics.json", "ledger.parquet", "config.toml"])
def test_missing_files_of_a_run_are_named(name: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE)
    (folder.path / name).unlink()
    refuse("disclose", folder.path, says=["metrics.json" if name == "metrics.json" else "run"])


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    refuse("disclose", plan, says=["no plan", "isthmus plan"])
    for text in (
        "",
        "[]",
        "{}",
        '{"disclosure": 1}',
        '{"disclosure": {"facts": {}}}',
        '{"disclosure": {}, "bytes": 1}',
    ):
        plan.write_text(text)
        refuse("disclose", plan, says=["plan.json", "plan"])
    told = json.loads(succeed("plan", *OPTIONS, "--json").out)
    whole = json.dumps(told)
    told["disclosure"]["passages"][0]["kind"] = "gossip"
    plan.write_text(json.dumps(told))
    refuse("disclose", plan, says=["damaged", "gossip"])
    for key in ("silo_nodes", "schema", "scale", "parties", "columns", "epochs", "label"):
        told = json.loads(whole)
        told["disclosure"]["facts"][key] = [3]
        plan.write_text(json.dumps(told))
        if key != "label":
            refuse("disclose", plan, says=["plan.json"])
    refuse("disclose", "no-such-recipe", says=["no-such-recipe"])
    refuse("disclose", plan, "--set", "train.lr=1", says=["--set", "recipes"])
