"""What a party keeps in its own kit beside FLARE's files: where its data and runs lie, and what a job may do there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.commands.flare.job_files import CONTROLLER, EXECUTOR
from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.data.members import is_parts, member_names
from isthmus.policy.reading import preset_names, read_policy
from isthmus.wire.flare.known_parties import FILE, KnownParties
from isthmus.wire.flare.papers import Papers

PLACE = "isthmus.json"
_NOTHING = ("byoc", "shell_commands", "server-predeployed-flwr")  # code in jobs, commands on this machine


@dataclass(frozen=True)
class LocalFiles:
    """Where a party's data and runs lie, the name of the server that its kit trusts, and the party's own policy.

    ``policy`` (a file, or the name of one that ships with the package) holds where the folder of the part has none.
    """

    data: Path | None
    runs: Path
    server: str
    policy: str = ""

    @staticmethod
    def read(kit: Path) -> LocalFiles:
        """The place that 'isthmus flare site' has written into a kit."""
        path = kit / "local" / PLACE
        if not path.is_file():
            raise IsthmusError(
                f"'{kit}' is not prepared; run 'isthmus flare site {kit} --data PARTS --runs RUNS' first."
            )
        told = json.loads(path.read_text())
        data = Path(told["data"]) if told["data"] else None
        return LocalFiles(data, Path(told["runs"]), server_of(kit), told.get("policy", ""))


def role(kit: Path) -> str:
    """Whose kit it is: ``client``, ``server`` or ``admin``."""
    for name in ("client", "server", "admin"):
        if (kit / "startup" / f"fed_{name}.json").is_file():
            return name
    raise IsthmusError(f"'{kit}' is no startup kit of FLARE: it lacks startup/fed_client.json or fed_server.json.")


def server_of(kit: Path) -> str:
    """The name of the server that a kit belongs to; others who claim to be it are refused."""
    whose = role(kit)
    told = json.loads((kit / "startup" / f"fed_{whose}.json").read_text())
    return str(told["servers"][0]["identity" if whose == "client" else "admin_server"])


def prepare_kit(
    kit: Path, data: Path | None, runs: Path, policy: str = "", pins: Mapping[str, str] | None = None
) -> Papers:
    """Check a kit and write its local files; returns the papers in it.

    ``pins``: fingerprints of other parties' certificates, by name.
    """
    papers, whose = Papers.of_kit(kit), role(kit)
    papers.check()
    if whose == "admin":
        raise IsthmusError(
            f"'{kit}' is the kit of an administrator, who has no data; give that of a site or the server."
        )
    if whose == "client":
        _check_data(papers.name, data)
    elif data is not None or policy:
        what = "data; leave out --data" if data is not None else "policy; leave out --policy"
        raise IsthmusError(f"'{kit}' is the kit of the server, which has no {what}.")
    local = kit / "local"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = {"data": str(data.absolute()) if data else "", "runs": str(runs.absolute()), "policy": _policy(policy)}
    known_parties(kit).pin(pins or {})
    _write(local / PLACE, place)
    _write(local / "resources.json", _resources(kit, whose))
    _write(local / "authorization.json", _authorization(local))
    return papers


def why_file(run: Path) -> Path:
    """Where a party writes why a run has failed: beside its folder, for a run that is refused has none."""
    return run.with_name(f"{run.name}.failed.txt")


def known_parties(kit: Path) -> KnownParties:
    """The certificates by which the party of a kit knows the others."""
    return KnownParties(kit / "local" / FILE)


def _policy(named: str) -> str:
    """A policy by its whole path, or by its name where it ships with the package; raises where it cannot be read."""
    if not named:
        return ""
    read_policy(named)
    return named if named in preset_names() else str(Path(named).absolute())


def _check_data(name: str, data: Path | None) -> None:
    """Refuse data that holds no part of this silo."""
    if data is None or not is_parts(str(data)):
        raise IsthmusError(
            f"--data must be a folder of parts, with federation.toml and {name}/silo.toml; 'isthmus split' writes such "
            f"folders, docs/data.md describes them. Got '{data or ''}'."
        )
    if name not in member_names(data) or not (data / name / "silo.toml").is_file():
        raise IsthmusError(
            f"'{data}' has no part of '{name}', to whom this kit is made out; it lists "
            f"{', '.join(member_names(data))}. A silo goes by the name in its certificate."
        )


def _resources(kit: Path, whose: str) -> dict[str, Any]:
    """FLARE's own resources, with one class allowed and nothing streamed; the server's stores lie in its kit."""
    told: dict[str, Any] = json.loads((kit / "local" / "resources.json.default").read_text())
    told["class_list_enforcement_mode"] = "enforce"
    told["class_allow_list"] = [CONTROLLER if whose == "server" else EXECUTOR]
    gone = ("site_log_streamer", "log_receiver")
    told["components"] = [each for each in told["components"] if each["id"] not in gone]
    if whose == "client":
        told["allow_log_streaming"] = False
        return told
    stores = (kit / "stores").absolute()
    told["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(stores / "snapshots")
    for each in told["components"]:
        if each["id"] == "job_manager":
            each["args"]["uri_root"] = str(stores / "jobs")
    return told


def _authorization(local: Path) -> dict[str, Any]:
    """FLARE's own permissions, without code in jobs and without commands on this machine, for any role."""
    told: dict[str, Any] = json.loads((local / "authorization.json.default").read_text())
    usual = {"submit_job": "any", "clone_job": "any", "manage_job": "any", "download_job": "any", "view": "any"}
    for who, may in told["permissions"].items():
        rights = {**usual, "operate": "any"} if may == "any" else dict(may)
        told["permissions"][who] = {**rights, **dict.fromkeys(_NOTHING, "none")}
    return told


def _write(path: Path, content: Any) -> None:
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
