"""What FLARE's own commands read to make certificates: one file for the coordinator, one for each organisation."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.commands.flare.job_files import check_name
from isthmus.core.errors import IsthmusError

SCHEMES = ("tcp", "grpc", "http")
_PATHS = "nvflare.lighter.impl"


def organisation(name: str) -> str:
    """The name of an organisation as FLARE allows it: letters, digits and underscores."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def participants(server: str, port: int, sites: Sequence[str], coordinator: str) -> dict[str, dict[str, Any]]:
    """Everybody who gets a certificate: {name: entry}."""
    for site in sites:
        check_name(site)
    if len({server, *sites}) != 1 + len(sites):
        raise IsthmusError(f"The names {', '.join((server, *sites))} must differ.")
    of = organisation("coordinator")
    entries: list[dict[str, Any]] = [
        {"name": server, "type": "server", "org": of, "fed_learn_port": port, "admin_port": port},
        *({"name": site, "type": "client", "org": organisation(site), "allow_log_streaming": False} for site in sites),
        {"name": coordinator, "type": "admin", "org": of, "role": "lead"},
    ]
    return {entry["name"]: entry for entry in entries}


def write_requests(
    folder: Path, project: str, server: str, port: int, sites: Sequence[str], coordinator: str, scheme: str
) -> list[Path]:
    """Write ``profile.yml`` for the coordinator and ``NAME.yml`` for everybody who asks for a certificate."""
    import yaml

    if scheme not in SCHEMES:
        raise IsthmusError(f"--scheme is '{scheme}'; choose from {', '.join(SCHEMES)}.")
    if folder.exists() and any(folder.iterdir()):
        raise IsthmusError(f"'{folder}' is not empty; choose another --out.")
    everybody = participants(server, port, sites, coordinator)
    at = {"host": server, "fed_learn_port": port, "admin_port": port}
    profile = {"name": project, "scheme": scheme, "connection_security": "mtls", "server": at}
    files: Mapping[str, Any] = {
        "profile.yml": profile,
        **{f"{name}.yml": {"name": project, "participants": [entry]} for name, entry in everybody.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    return [folder / name for name in files]


def provision_here(folder: Path, port: int, sites: Sequence[str], coordinator: str) -> dict[str, Path]:
    """Make everybody's kits on this machine, each in a folder of its own below ``folder``: {name: kit}.

    This machine then knows every private key, which is right for a demonstration only.
    """
    import yaml

    everybody = participants("localhost", port, sites, coordinator)
    project = {
        "api_version": 3,
        "name": "isthmus",
        "description": "three banks on one machine",
        "participants": list(everybody.values()),
        "builders": [
            {"path": f"{_PATHS}.workspace.WorkspaceBuilder", "args": {}},
            {"path": f"{_PATHS}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "tcp"}},
            {"path": f"{_PATHS}.cert.CertBuilder", "args": {}},
            {"path": f"{_PATHS}.signature.SignatureBuilder", "args": {}},
        ],
    }
    made = folder / ".provisioned"
    made.mkdir(parents=True)
    (made / "project.yml").write_text(yaml.safe_dump(project, sort_keys=False))
    _provision(made / "project.yml", made)
    kits = {}
    for name in everybody:
        kits[name] = folder / ("server" if name == "localhost" else name) / "kit"
        kits[name].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(next(made.glob(f"isthmus/prod_*/{name}")), kits[name])
    shutil.rmtree(made)
    return kits


def _provision(project: Path, workspace: Path) -> None:
    """Let FLARE make certificates and kits, in silence."""
    from nvflare.lighter.entity import Project
    from nvflare.lighter.prov_utils import prepare_builders, prepare_packager
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner
    from nvflare.lighter.utils import load_yaml

    told = load_yaml(str(project))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        plan: Project = prepare_project(told)
        done = Provisioner(str(workspace), prepare_builders(told), prepare_packager(told)).provision(plan)
    if done.get("build_error"):
        raise IsthmusError(f"FLARE could not make the kits: {json.dumps(said.getvalue()[-500:])}")
