"""The part of a job that runs in FLARE's server job: it opens the run, and carries the Isthmus server if asked to."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from isthmus.commands.flare.job_files import OPEN, TRAIN, FlareJob
from isthmus.wire.flare.cell_post import CellPost

if TYPE_CHECKING:
    from isthmus.commands.flare.party import FlareParty

_OPENING = 120  # seconds in which every site must have said hello; PyTorch is imported in them


class IsthmusController(Controller):  # type: ignore[misc]
    """Asks all sites to open, passes their hellos on, and lets them train; it never sees the words of their errors."""

    def __init__(self, job: str) -> None:
        """``job``: the words of a `FlareJob`."""
        super().__init__()
        self.job = FlareJob.read(job)
        self._told: dict[str, dict[str, Any]] = {}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is done before the control flow."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to be stopped."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job; it fails as a whole if one party does."""
        problem = self._run(abort_signal, fl_ctx)
        if problem:
            self.system_panic(problem, fl_ctx)

    def _run(self, abort_signal: Signal, fl_ctx: FLContext) -> str:
        engine = fl_ctx.get_engine()
        sites: dict[str, Client] = {client.name: client for client in engine.get_clients()}
        missing = [silo for silo in self.job.silos if silo not in sites]
        if missing:
            return f"The job needs {', '.join(missing)}, who did not come; who is here: {', '.join(sites)}."
        party, post = None, None
        hellos: dict[str, Any] = {}
        addresses: dict[str, str] = {}
        if not self.job.server:
            try:
                party, post = self._own_party(fl_ctx)
                hellos = {party.papers.name: party.hello.as_dict()}
            except Exception as error:
                self.log_exception(fl_ctx, f"The server cannot take part: {error}", fire_event=False)
                return f"The server cannot take part ({type(error).__name__}); its log says why."
            addresses = {party.papers.name: FQCN.join([FQCN.ROOT_SERVER, fl_ctx.get_job_id()])}
        problem = self._ask(OPEN, {"job": self.job.words()}, _OPENING, abort_signal, fl_ctx)
        if problem:
            return problem
        hellos |= {name: told.get("hello") for name, told in self._told.items()}
        addresses |= {silo: FQCN.join([sites[silo].get_fqcn(), fl_ctx.get_job_id()]) for silo in self.job.silos}
        return self._train({"hellos": hellos, "addresses": addresses}, party, post, abort_signal, fl_ctx)

    def _own_party(self, fl_ctx: FLContext) -> tuple[FlareParty, CellPost]:
        """The Isthmus server as a party of this process; PyTorch is imported now, and not when FLARE reads the job."""
        from isthmus.commands.flare.party import FlareParty

        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        party = FlareParty(Path(workspace.get_root_dir()), self.job, fl_ctx.get_job_id())
        return party, CellPost(fl_ctx.get_engine().get_cell())

    def _train(
        self,
        told: Mapping[str, Any],
        party: FlareParty | None,
        post: CellPost | None,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> str:
        """Let the sites train, and the Isthmus server beside them; returns what went wrong, or an empty string."""
        failed: list[str] = []

        def serve() -> None:
            assert party is not None and post is not None
            try:
                post.address(told["addresses"])
                party.train(told["hellos"], post, lambda: bool(abort_signal.triggered))
            except Exception as error:
                self.logger.exception("The server ends its part of the job.")
                failed.append(f"The server ended by {type(error).__name__}; its log says why.")

        server = threading.Thread(target=serve, daemon=True)
        if party is not None:
            server.start()
        problem = self._ask(TRAIN, told, 0, abort_signal, fl_ctx)
        if party is not None:
            server.join()
        return problem or " ".join(failed)

    def _ask(self, task: str, told: Mapping[str, Any], timeout: int, abort_signal: Signal, fl_ctx: FLContext) -> str:
        """Give all sites a task and wait for all answers; returns what went wrong, or an empty string."""
        self._told = {}
        data = Shareable()
        data["told"] = json.dumps(told)
        sites = list(self.job.silos)
        work = Task(task, data=data, timeout=timeout, result_received_cb=self._heard)
        self.broadcast_and_wait(work, fl_ctx, targets=sites, min_responses=len(sites), abort_signal=abort_signal)
        silent = [silo for silo in sites if silo not in self._told]
        ended = [f"{silo} ({told['ended']})" for silo, told in self._told.items() if told.get("ended", "unknown")]
        words = [f"{', '.join(silent)} did not answer"] if silent else []
        words += [f"ended: {', '.join(ended)}; their own logs say why"] if ended else []
        return ". ".join(words)

    def _heard(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Keep a site's answer; one that makes no sense counts as an error of that site."""
        try:
            told = json.loads(client_task.result["told"])
            self._told[client_task.client.name] = told if isinstance(told, dict) else {"ended": "no answer"}
        except (KeyError, TypeError, ValueError) as error:
            self._told[client_task.client.name] = {"ended": type(error).__name__}
