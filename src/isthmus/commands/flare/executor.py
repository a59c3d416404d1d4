"""The part of a job that runs at a site, in the process that FLARE starts there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from isthmus.commands.flare.job_files import OPEN, TRAIN, FlareJob
from isthmus.wire.flare.cell_post import CellPost

if TYPE_CHECKING:
    from isthmus.commands.flare.party import FlareParty


class IsthmusExecutor(Executor):  # type: ignore[misc]
    """Opens a silo's mail box and says hello; then trains to the end.

    It answers with the class of an error, never with its words, which may quote data; those stay in the site's log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._party: FlareParty | None = None
        self._post: CellPost | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Do one of the two tasks of a job."""
        reply = Shareable()
        try:
            told = json.loads(shareable["told"])
            done = {OPEN: self._open, TRAIN: self._train}[task_name](told, fl_ctx, abort_signal)
        except Exception as error:
            self.log_exception(fl_ctx, f"This party ends its part of the job: {error}", fire_event=False)
            done = {"ended": type(error).__name__}
        reply["told"] = json.dumps(done)
        return reply

    def _open(self, told: Any, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Read the job, look after data and papers, open the mail box; returns this party's hello."""
        from isthmus.commands.flare.party import FlareParty

        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        cell = fl_ctx.get_engine().get_cell()
        self._party = FlareParty(Path(workspace.get_root_dir()), FlareJob.read(told["job"]), fl_ctx.get_job_id())
        self._post = CellPost(cell)
        return {"ended": "", "hello": self._party.hello.as_dict()}

    def _train(self, told: Any, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Train with the parties whose hellos the server has passed on, each checked here."""
        assert self._party is not None and self._post is not None, "a job begins with its first task"
        self._post.address(told["addresses"])
        self._party.train(told["hellos"], self._post, lambda: bool(abort_signal.triggered))
        return {"ended": ""}
