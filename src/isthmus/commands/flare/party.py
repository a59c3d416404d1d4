"""One host of a job, from its hello to its end: a bank at its site, or the Isthmus server in FLARE's server job."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
import torch

from isthmus.commands.flare.job_files import FlareJob, refuse_what_jobs_cannot_say
from isthmus.commands.flare.local_files import LocalFiles, known_parties, why_file
from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.files import private
from isthmus.core.kinds import SERVER, SERVER_NAME
from isthmus.data.members import member_names
from isthmus.launch.host import open_run, prepare, run_over, set_up_process
from isthmus.launch.party import keep_config
from isthmus.launch.policies import Policies
from isthmus.launch.settings import common_settings
from isthmus.launch.silos import load_silos
from isthmus.launch.start import Start
from isthmus.protect.key_agreement import KeyPair
from isthmus.report.report import write_report
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder, claimed
from isthmus.wire.flare.courier import Post, SealedCourier
from isthmus.wire.flare.papers import Papers
from isthmus.wire.flare.seals import Hello, Seals
from isthmus.wire.letters import LetterWire
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Refused
from isthmus.wire.pulse import one_line


class FlareParty:
    """One host of a job. Its kit says who it is, and ``local/isthmus.json`` in it where data and runs lie."""

    def __init__(self, kit: Path, job: FlareJob, number: str) -> None:
        """``number``: FLARE's number of this job, which seals belong to."""
        self.job, self.number = job, number
        self.papers = Papers.of_kit(kit)
        self.papers.check()
        self.place = LocalFiles.read(kit)
        self.known = known_parties(kit)
        self.names = hosts_of(job, self.place.server)
        if self.papers.name not in self.names:
            raise IsthmusError(f"{self.papers.name} is no party of the job '{job.name}': {', '.join(self.names)} are.")
        self.host = self.names.index(self.papers.name)
        self.pair = KeyPair()

    @cached_property
    def members(self) -> Membership:
        """Who lives where: a host for each silo; and one for the server, unless it lives with a silo."""
        silos = range(len(self.job.silos))
        homes = [silo + (not self.job.server) for silo in silos]
        server = self.names.index(self.job.server) if self.job.server else 0
        return Membership(len(homes), tuple(homes), server, tuple(silos))

    @cached_property
    def config(self) -> RunConfig:
        """The job's configuration, with this party's own data."""
        recipe = deepcopy(dict(self.job.recipe))
        refuse_what_jobs_cannot_say(recipe)
        recipe["data"] = {**recipe.get("data", {}), "name": str(self._parts()), "folder": ""}
        config = resolve(recipe)
        if config.method.chain.secrets == "seed":
            raise IsthmusError(
                "The job asks for noise that follows from the seed, which every party knows (protect.secrets=seed): "
                "others could take it away again. Leave protect.secrets out."
            )
        return prepare(replace(config, system=replace(config.system, hosts=len(self.names))))

    def _parts(self) -> Path:
        """The folder with this party's part; for a server without silos one that only lists the silos' names."""
        if self.members.on(self.host):
            parts = self.place.data
            if parts is None:
                raise IsthmusError(f"{self.papers.name} has no data; prepare its kit again, with --data.")
            if tuple(member_names(parts)) != self.job.silos:
                raise IsthmusError(
                    f"'{parts}' lists the silos {', '.join(member_names(parts))}; the job has "
                    f"{', '.join(self.job.silos)}. All parties need one list in one order."
                )
            return parts
        listing = self.place.runs / ".silos" / self.job.name / "federation.toml"
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_text(tomli_w.dumps({"silos": list(self.job.silos)}))
        return listing.parent

    @cached_property
    def hello(self) -> Hello:
        """What this party signs and shows to the others before anything crosses: its settings, versions and key."""
        said = {**common_settings(self.config, self.job.resume), "server at": self.job.server or "FLARE's server job"}
        said |= {f"version of {package}": version_of(package) for package in ("torch", "nvflare")}
        refuses = "" if self.refusal is None else self.refusal.told
        return Hello.signed(self.papers, self.number, self.pair, said, refuses)

    @cached_property
    def refusal(self) -> Refused | None:
        """What this party's policy refuses of the job, as far as it can be told before anything crosses."""
        mine = self.members.on(self.host)
        policies = Policies.on(mine, self.config, self.place.policy)
        try:
            policies.check_run(self.members)
            if not policies.refuses_nothing:
                policies.check_data(load_silos(self.config.data, merged=False, mine=mine), open_run)
        except Refused as refused:
            return refused
        return None

    def train(self, hellos: Mapping[str, Any], post: Post, aborted: Callable[[], bool]) -> None:
        """Run this host to its end; why it fails is written beside its run folder."""
        folder = self.place.runs / self.job.name
        why = why_file(folder)
        with private():
            why.unlink(missing_ok=True)
            try:
                with claimed(folder, self.job.resume, overwrite=False) as run:
                    self._train(hellos, post, aborted, run)
            except Exception as error:  # others are told its class alone
                why.write_text(f"{type(error).__name__}: {error}\n")
                raise

    def _train(self, hellos: Mapping[str, Any], post: Post, aborted: Callable[[], bool], run: RunFolder) -> None:
        wire = self._meet(hellos, post, aborted)
        try:
            set_up_process(self.config)
            keep_config(self.config, run, self.job.resume)
            metrics = run_over(wire, Start(self.config, run, self.job.resume, policy=self.place.policy))
        except IsthmusError:
            raise
        except Exception as error:  # others hear of its kind alone: its words may tell of data
            wire.end(f"{self.papers.name} has ended by {type(error).__name__}; its own log says why.")
            raise
        if metrics is not None:
            write_report(RunFolder.open(run.path))

    def _meet(self, hellos: Mapping[str, Any], post: Post, aborted: Callable[[], bool]) -> LetterWire:
        """Check the hellos of all parties, compare their settings, and return the wire between them."""
        others = {name: Hello.read(hellos.get(name), name) for name in self.names if name != self.papers.name}
        seals = Seals(self.pair, self.hello, others, self.papers.root, self.number, self.papers.name)
        timeout = self.config.system.timeout
        courier = SealedCourier(post, self.names, self.host, seals, timeout, aborted)
        try:
            self._accept(seals)
        except PeerError as error:  # the others have no way to see it, and it tells nothing of data
            courier.tell(f"{self.papers.name} ends: {error}")
            raise
        wire = LetterWire(self.members, self.host, courier, self.config.method.chain)
        wire.ledger.names |= dict(enumerate(self.job.silos))
        for name, fingerprint in {self.papers.name: self.papers.fingerprint, **seals.fingerprints}.items():
            wire.introduced[SERVER_NAME if name == self.place.server else name] = {"certificate": fingerprint}
        return wire

    def _accept(self, seals: Seals) -> None:
        """Refuse parties by their certificates or settings, and runs that the policy of a party refuses."""
        self.known.meet(seals.fingerprints)
        compare({self.papers.name: json.loads(self.hello.words)["said"], **seals.said})
        if self.refusal is not None:
            raise self.refusal
        for told in filter(None, seals.refuses.values()):
            raise IsthmusError(one_line(told.encode()))

    @property
    def at_server(self) -> bool:
        """Whether the Isthmus server lives on this host."""
        return self.members.home(SERVER) == self.host


def hosts_of(job: FlareJob, server: str) -> list[str]:
    """Names of all hosts of a job in order; ``server`` is that of FLARE's server, which is one if the job says so."""
    return list(job.silos) if job.server else [server, *job.silos]


def version_of(package: str) -> str:
    """The version of an installed package, without what it was built for."""
    if package == "torch":
        return torch.__version__.split("+")[0]
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def compare(said: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse settings and versions that differ between parties, naming each value and who has it."""
    words = []
    for key in sorted({key for settings in said.values() for key in settings}):
        values: dict[str, list[str]] = {}
        for name, settings in said.items():
            values.setdefault(repr(settings[key]) if key in settings else "not set", []).append(name)
        if len(values) > 1:
            words.append(f"{key} is " + " and ".join(f"{value} at {', '.join(on)}" for value, on in values.items()))
    if words:
        more = f"; and {len(words) - 3} more" if len(words) > 3 else ""
        raise IsthmusError(f"The parties of this job differ: {'; '.join(words[:3])}{more}. Nothing has crossed.")
