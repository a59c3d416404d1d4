"""Startup kits as FLARE packages them, and whole jobs between parties of this process; nothing needs NVIDIA FLARE."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.commands.flare.demo import deal
from isthmus.commands.flare.job import recipe_of
from isthmus.commands.flare.job_files import FlareJob
from isthmus.commands.flare.local_files import prepare_kit
from isthmus.commands.flare.party import FlareParty
from isthmus.runs.config import resolve
from tests.helpers.papers import Network, papers

SILOS = ("bank-a", "bank-b")


def kit_of(folder: Path, name: str, whose: str = "client", days: tuple[float, float] = (-1, 30)) -> Path:
    """A startup kit as FLARE packages it, as far as it is read here."""
    mine = papers(name, days=days)
    startup, local = folder / "startup", folder / "local"
    startup.mkdir(parents=True)
    local.mkdir()
    pair = "server" if whose == "server" else "client"
    for file, content in ((f"{pair}.crt", mine.chain), (f"{pair}.key", mine.key), ("rootCA.pem", mine.root)):
        (startup / file).write_bytes(content)
    server = {"identity": "server", "admin_server": "server"}
    (startup / f"fed_{whose}.json").write_text(json.dumps({"servers": [server]}))
    components = [{"id": name, "args": {}} for name in ("site_log_streamer", "log_receiver", "job_manager", "launcher")]
    stores = {"args": {"storage": {"args": {"root_dir": "/tmp/shared"}}}}
    resources = {"class_allow_list": ["x.y"], "allow_log_streaming": True, "components": components}
    (local / "resources.json.default").write_text(json.dumps({**resources, "snapshot_persistor": stores}))
    rights = {"permissions": {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "any"}}}
    (local / "authorization.json.default").write_text(json.dumps(rights))
    return folder


def parts_of(folder: Path, name: str, silos: tuple[str, ...] = SILOS) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "silo.toml").write_text(f'name = "{name}"\n')
    (folder / "federation.toml").write_text(f"silos = {json.dumps(list(silos))}\n")
    return folder


class Federation:
    """Two banks and a server with kits of their own; jobs run between threads, over a network of this process."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        self.folder, self.config = folder, resolve(dict(recipe))
        self.parts = deal(self.config, folder, SILOS)
        self.kits = {
            name: kit_of(folder / name / "kit", name, "server" if name == "server" else "client")
            for name in ("server", *SILOS)
        }

    def run(self, name: str = "run", **prepared: Mapping[str, Any]) -> dict[str, Exception | None]:
        """How each party has ended; ``prepared``: further options of a bank's kit, with ``_`` for ``-`` in its name."""
        network, job = Network(), FlareJob(name, recipe_of(self.config), SILOS)
        parties, ended = {}, {}
        for party, kit in self.kits.items():
            prepare_kit(kit, self.parts.get(party), kit.parent / "runs", **prepared.get(party.replace("-", "_"), {}))
            parties[party] = FlareParty(kit, job, f"number of {name}")
        hellos = {party: each.hello.as_dict() for party, each in parties.items()}

        def live(party: str) -> None:
            try:
                parties[party].train(hellos, network.post(party), lambda: False)
                ended[party] = None
            except Exception as error:
                ended[party] = error

        threads = [threading.Thread(target=live, args=(party,)) for party in parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ended

    def metrics(self, party: str, name: str = "run") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.kits[party].parent / "runs" / name / "metrics.json").read_text())
        return found
