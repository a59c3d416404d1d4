"""Runs over NVIDIA FLARE between provisioned sites on this machine, over loopback with mutual TLS."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install 'isthmus[flare]'")

from isthmus.commands.flare import demo
from isthmus.commands.flare.job import SUCCEEDED, make_job
from isthmus.commands.flare.local_files import prepare_kit, why_file
from isthmus.commands.flare.provision import provision_here
from isthmus.commands.flare.system import await_end, await_sites, running, session
from isthmus.core.errors import IsthmusError
from isthmus.launch.start import Start
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into
from tests.helpers.command import losses
from tests.helpers.papers import certificate, key_of, root

pytestmark = pytest.mark.extra
MAIN = [sys.executable, "-c", "from isthmus.cli import main; main()"]


def below(folder: Path) -> list[psutil.Process]:
    """Processes whose command names a folder."""
    return [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]


def test_the_demonstration_equals_one_process_and_leaves_everybody_their_files(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = subprocess.run([*MAIN, "flare", "demo", "--out", str(out)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 losses equal those of one process" in done.stdout and "in FLARE's server job" in done.stdout
    difference, count = demo.compare_losses(out / "server" / "runs" / demo.NAME, out / "in-one-process")
    assert count == 20 and difference < 1e-11
    metrics = RunFolder.open(out / "server" / "runs" / demo.NAME).metrics
    assert metrics["server"]["beside"] == [] and metrics["hosts"] == 4
    for bank in demo.BANKS:
        assert (out / bank / "runs" / demo.NAME / "config.toml").is_file()
        assert [path.name for path in (out / bank / "data").iterdir() if path.is_dir()] == [bank]  # nobody else's part
    assert below(out) == []


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    started = subprocess.Popen(
        [*MAIN, "flare", "demo", "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not any((out / bank / "runs" / demo.NAME).exists() for bank in demo.BANKS):  # the job runs
        assert started.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    assert len(below(out)) > 4
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 2 and "Interrupted; all processes of the demonstration have ended" in said
    assert below(out) == []


def test_a_killed_party_is_noticed_and_the_run_goes_on_with_resume(tmp_path: Path) -> None:
    """kill -9 of one bank's job: the others end by an error of their own, and the resumed run is the whole one."""
    recipe = merge_into(merge_into({}, demo.RECIPE), {"train": {"epochs": 60, "checkpoint_every": 1}})
    config = resolve(recipe)
    kits = provision_here(tmp_path, demo.free_port(), demo.BANKS, demo.COORDINATOR)
    parts = demo.deal(config, tmp_path)
    parties = {name: kit for name, kit in kits.items() if name != demo.COORDINATOR}
    for name, kit in parties.items():
        prepare_kit(kit, parts.get(name), kit.parent / "runs")
    runs = {name: kit.parent / "runs" / "whole" for name, kit in parties.items()}
    alone = merge_into({}, {**recipe, "data": {"name": str(tmp_path / "all-parts")}})

    def submit(opened: Any, name: str, resume: bool) -> str:
        job = make_job(config, demo.BANKS, "whole", "bank-a", resume, tmp_path / name)
        return str(opened.submit_job(str(job)))

    with running(list(parties.values())) as processes, session(kits[demo.COORDINATOR], processes) as opened:
        await_sites(opened, demo.BANKS, processes, 60)
        number = submit(opened, "first", resume=False)
        history = runs["bank-a"] / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not history.exists() or len(history.read_text().splitlines()) < 10:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [victim] = [each for each in below(kits["bank-b"]) if number in " ".join(each.cmdline())]
        victim.kill()
        killed = time.monotonic()
        assert await_end(opened, number, processes)["status"] != SUCCEEDED
        print(f"the job has ended {time.monotonic() - killed:.1f} s after the kill")
        for bank in ("bank-a", "bank-c"):
            assert why_file(runs[bank]).read_text().startswith("HostLost: ")
        assert len(losses(runs["bank-a"])) < 60
        status = await_end(opened, submit(opened, "second", resume=True), processes)["status"]
    assert status == SUCCEEDED
    demo.run_one(Start(resolve(alone), RunFolder.create(tmp_path / "one", False, False)), page=False)
    assert losses(runs["bank-a"]) == pytest.approx(losses(tmp_path / "one"), rel=1e-11)
    metrics = json.loads((runs["bank-a"] / "metrics.json").read_text())
    assert metrics["server"]["beside"] == ["bank-a"]  # at the site that the job named
    assert below(tmp_path) == []


def test_policies_hold_over_flare_and_a_kit_runs_once(tmp_path: Path) -> None:
    """A refusal that is foreseen ends the job on all sides before anything crosses; another ends it at its step."""
    config = resolve(merge_into(merge_into({}, demo.RECIPE), {"train": {"epochs": 200}}))
    kits = provision_here(tmp_path, demo.free_port(), demo.BANKS, demo.COORDINATOR)
    parts = demo.deal(config, tmp_path)
    parties = {name: kit for name, kit in kits.items() if name != demo.COORDINATOR}
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    for name, kit in parties.items():
        prepare_kit(kit, parts.get(name), kit.parent / "runs", str(policy) if name == "bank-b" else "")
    refusals = {
        "foreseen": ("[leave.embeddings]\nto = []", "[leave.embeddings] to"),
        "counted": ("bytes = 90_000", "bytes"),
    }
    with running(list(parties.values())) as processes, session(kits[demo.COORDINATOR], processes) as opened:
        await_sites(opened, demo.BANKS, processes, 60)
        with pytest.raises(IsthmusError, match="bank-b/kit' runs already"), running([kits["bank-b"]]):
            pass
        for name, (text, rule) in refusals.items():
            policy.write_text(text)
            number = str(opened.submit_job(str(make_job(config, demo.BANKS, name, "", False, tmp_path / name))))
            assert await_end(opened, number, processes)["status"] != SUCCEEDED
            for kit in parties.values():
                said = why_file(kit.parent / "runs" / name).read_text()
                assert "The policy of bank-b refuses" in said and rule in said, said
    assert (parts["bank-b"] / "bank-b" / "account.jsonl").is_file()
    assert below(tmp_path) == []


@pytest.mark.parametrize(("days", "says"), [((-3, -1), "has expired"), ((1, 3), "is valid from")])
def test_dates_of_a_certificate_give_a_message_instead_of_a_hang(
    days: tuple[float, float], says: str, tmp_path: Path
) -> None:
    kits = provision_here(tmp_path, demo.free_port(), demo.BANKS, demo.COORDINATOR)
    kit = kits["bank-a"]
    (kit / "startup" / "client.crt").write_bytes(certificate("bank-a", "authority", days))
    (kit / "startup" / "rootCA.pem").write_bytes(root())
    assert key_of("bank-a")
    began = time.monotonic()
    command = [*MAIN, "flare", "site", str(kit), "--runs", str(tmp_path / "runs"), "--start"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"The certificate of bank-a {says}" in done.stderr, done.stderr
    assert time.monotonic() - began < 30 and below(tmp_path) == []


def test_organisations_make_their_own_keys(tmp_path: Path) -> None:
    """The walk of docs/across-organisations.md, up to a prepared kit, with FLARE's own commands."""
    environment = {**os.environ, "HOME": str(tmp_path)}  # FLARE writes an account of certificates there
    nvflare = str(Path(sys.executable).with_name("nvflare"))

    def call(*arguments: object) -> None:
        done = subprocess.run(
            list(map(str, arguments)), capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    call(*MAIN, "flare", "init", "--sites", "bank-a,bank-b", "--server", "localhost", "--out", "yml")
    profile = "yml/profile.yml"
    call(nvflare, "cert", "init", "--profile", profile, "-o", "ca")
    told = json.loads((tmp_path / "ca" / "ca.json").read_text())
    for name in ("localhost", "bank-a", "coordinator@isthmus.local"):
        call(nvflare, "cert", "request", "-p", f"yml/{name}.yml", "--out", f"of-{name}")
        call(nvflare, "cert", "approve", f"of-{name}/{name}.request.zip", "-c", "ca", "--profile", profile,
             "--out", f"{name}.signed.zip")  # fmt: skip
        fingerprint = told.get("rootca_fingerprint_sha256") or _fingerprint(tmp_path / "ca" / "rootCA.pem")
        call(nvflare, "package", f"{name}.signed.zip", "--request-dir", f"of-{name}", "--fingerprint", fingerprint,
             "-w", f"kits-{name}")  # fmt: skip
    [kit] = (tmp_path / "kits-bank-a").glob("isthmus/prod_00/bank-a")
    recipe = {**demo.RECIPE, "data": {**demo.RECIPE["data"], "silos": 2}}
    parts = demo.deal(resolve(recipe), tmp_path, ("bank-a", "bank-b"))
    call(*MAIN, "flare", "site", kit, "--data", parts["bank-a"], "--runs", tmp_path / "runs")
    [kit] = (tmp_path / "kits-localhost").glob("isthmus/prod_00/localhost")
    call(*MAIN, "flare", "site", kit, "--runs", tmp_path / "server-runs")
    assert list((tmp_path / "ca").glob("*bank*")) == []  # no key of a bank reached the coordinator


def _fingerprint(certificate: Path) -> str:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import load_pem_x509_certificate

    return "SHA256:" + load_pem_x509_certificate(certificate.read_bytes()).fingerprint(SHA256()).hex(":").upper()
