"""Jobs and kits: what is written, what is refused; nothing here needs NVIDIA FLARE."""

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.commands.flare.job import make_job, recipe_of
from isthmus.commands.flare.job_files import CONTROLLER, EXECUTOR, FlareJob
from isthmus.commands.flare.local_files import LocalFiles, prepare_kit
from isthmus.commands.flare.party import FlareParty, compare
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER
from isthmus.runs.config import resolve
from tests.helpers.command import refuse
from tests.helpers.kits import SILOS, kit_of, parts_of

SMALL = {"method": "fedavg", "data": {"name": "blocks", "nodes": 64, "degree": 3, "scale": "none"}}


def job_of(recipe: dict[str, Any] | None = None, **options: Any) -> FlareJob:
    return FlareJob("run", recipe_of(resolve(recipe or SMALL)), SILOS, **options)


def party(
    tmp_path: Path, name: str = "bank-a", job: FlareJob | None = None, silos: tuple[str, ...] = SILOS
) -> FlareParty:
    whose = "server" if name == "server" else "client"
    kit = kit_of(tmp_path / name / "kit", name, whose)
    data = None if whose == "server" else parts_of(tmp_path / name / "data", name, silos)
    prepare_kit(kit, data, tmp_path / name / "runs")
    return FlareParty(kit, job or job_of(), "number-1")


# ---- kits


def test_a_prepared_kit_lets_in_one_class_and_no_code(tmp_path: Path) -> None:
    kit = kit_of(tmp_path / "kit", "bank-a")
    prepare_kit(kit, parts_of(tmp_path / "data", "bank-a"), tmp_path / "runs")
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == [EXECUTOR] and resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert [each["id"] for each in resources["components"]] == ["job_manager", "launcher"]
    rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    for who in ("project_admin", "lead"):
        assert rights[who]["byoc"] == rights[who]["shell_commands"] == "none" and rights[who]["submit_job"] == "any"
    assert LocalFiles.read(kit) == LocalFiles(tmp_path / "data", tmp_path / "runs", "server")
    assert (tmp_path / "runs").stat().st_mode & 0o077 == 0


def test_stores_of_a_server_lie_in_its_kit(tmp_path: Path) -> None:
    kit = kit_of(tmp_path / "kit", "server", "server")
    prepare_kit(kit, None, tmp_path / "runs")
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == [CONTROLLER]
    assert "/tmp/shared" not in json.dumps(resources) and str(kit / "stores" / "jobs") in json.dumps(resources)


def test_kits_that_cannot_work_are_refused(tmp_path: Path) -> None:
    data, runs = parts_of(tmp_path / "data", "bank-a"), tmp_path / "runs"
    for name, whose, days, given, match in [
        ("bank-a", "client", (-3, -1), data, "certificate of bank-a has expired"),
        ("bank-a", "client", (-1, 30), None, "--data must be a folder of parts"),
        ("bank-b", "client", (-1, 30), data, "has no part of 'bank-b', to whom this kit is made out; it lists bank-a"),
        ("server", "server", (-1, 30), data, "the kit of the server, which has no data"),
        ("coordinator", "admin", (-1, 30), None, "the kit of an administrator"),
    ]:
        kit = kit_of(tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}", name, whose, days)
        with pytest.raises(IsthmusError, match=match):
            prepare_kit(kit, given, runs)
        assert not (kit / "local" / "resources.json").exists()
    with pytest.raises(IsthmusError, match="is no startup kit"):
        prepare_kit(tmp_path, data, runs)


# ---- jobs


def test_a_job_is_configuration_only(tmp_path: Path) -> None:
    folder = make_job(resolve(SMALL), SILOS, "run", "", False, tmp_path / "job")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    config = "app/config/config_fed"
    assert found == {"meta.json", f"{config}_client.json", f"{config}_server.json"}
    server = json.loads((folder / f"{config}_server.json").read_text())
    job = FlareJob.read(server["workflows"][0]["args"]["job"])
    assert job == job_of() and job.recipe["data"] == {"scale": "none", "edges": "mutual", "cross": "known",
                                                      "level": "silo", "seed": 0}  # fmt: skip
    with pytest.raises(IsthmusError, match="exists; choose another --out"):
        make_job(resolve(SMALL), SILOS, "run", "", False, folder)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": "../elsewhere"}, "'../elsewhere' cannot be a name here"),
        ({"name": "."}, "cannot be a name here"),
        ({"silos": ["bank-a", "bank-a"]}, "name every silo once"),
        ({"silos": []}, "name every silo once"),
        ({"silos": ["a/b"]}, "'a/b' cannot be a name"),
        ({"server": "bank-x"}, "The server cannot live at 'bank-x'"),
        ({"recipe": []}, "its recipe is no table"),
        ({"resume": "yes"}, "its recipe is no table, or --resume"),
        ({"silos": 3}, "The job cannot be read"),
    ],
)
def test_a_job_that_came_from_another_is_checked(change: dict[str, Any], match: str) -> None:
    told = json.loads(job_of().words()) | change
    with pytest.raises(IsthmusError, match=match):
        FlareJob.read(json.dumps(told))
    with pytest.raises(IsthmusError, match="The job cannot be read"):
        FlareJob.read("no words")


def test_what_no_job_can_do_is_refused_when_it_is_made() -> None:
    with pytest.raises(IsthmusError, match="'centralised' merges all graphs into one"):
        recipe_of(resolve({**SMALL, "method": "centralised"}))
    with pytest.raises(IsthmusError, match="submit the job again with --resume"):
        recipe_of(resolve({**SMALL, "federation": {"absent": "stale"}}))


# ---- parties


def test_the_server_lives_beside_no_silo_or_where_it_was_asked_to(tmp_path: Path) -> None:
    at_flare = party(tmp_path / "1", "server")
    assert at_flare.names == ["server", *SILOS] and at_flare.at_server and at_flare.members.shared_with_server == ()
    beside = party(tmp_path / "2", "bank-b", job_of(server="bank-b"))
    assert beside.names == list(SILOS) and beside.at_server and beside.members.shared_with_server == (1,)
    assert at_flare.members.home(SERVER) == 0 and at_flare.config.system.hosts == 3


def test_all_parties_say_alike_wherever_their_data_lie(tmp_path: Path) -> None:
    said = [json.loads(party(tmp_path, name).hello.words)["said"] for name in ("server", *SILOS)]
    assert said[0] == said[1] == said[2] and {"version of torch", "version of nvflare"} <= set(said[0])
    assert str(tmp_path) not in json.dumps(said)


def test_a_job_that_a_party_cannot_take_part_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="bank-c is no party of the job 'run': server, bank-a, bank-b are"):
        party(tmp_path / "1", "bank-c", silos=("bank-c",))
    with pytest.raises(IsthmusError, match="lists the silos bank-b, bank-a; the job has bank-a, bank-b"):
        _ = party(tmp_path / "2", silos=("bank-b", "bank-a")).config
    noisy = {**SMALL, "protect": {"name": "gaussian", "clip": 1.0, "sigma": 1.0, "secrets": "seed"}}
    with pytest.raises(IsthmusError, match="noise that follows from the seed"):
        _ = party(tmp_path / "3", job=job_of(noisy)).config


def test_differences_name_values_and_parties() -> None:
    alike = {"train.lr": 0.1, "version of torch": "2.13.0"}
    compare({"server": alike, "bank-a": alike})
    with pytest.raises(IsthmusError) as told:
        compare({"server": alike, "bank-a": alike, "bank-b": {"version of torch": "2.12.0"}})
    assert "train.lr is 0.1 at server, bank-a and not set at bank-b; version of torch is '2.13.0' at" in str(told.value)
    assert "Nothing has crossed" in str(told.value)


def test_without_flare_the_commands_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", absent)
    told = refuse("flare", "demo", "--out", tmp_path / "demo")
    assert "needs NVIDIA FLARE, which is not installed: pip install 'isthmus[flare]'" in told
    monkeypatch.setattr("importlib.metadata.version", lambda package: "2.8.0")
    assert "works with NVIDIA FLARE 2.9, not 2.8.0" in refuse("flare", "demo", "--out", tmp_path / "demo")
