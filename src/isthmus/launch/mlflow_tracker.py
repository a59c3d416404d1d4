"""A run in MLflow: parameters and metrics in a local folder, under the experiment ``isthmus``."""

from __future__ import annotations

import os
import re
from typing import Any

from isthmus.launch.tracker import Tracker

EXPERIMENT = "isthmus"
_LONGEST = 500  # characters of a parameter


class MLflowTracker(Tracker):
    """Writes a run for ``mlflow ui --backend-store-uri DIR``; nothing leaves the machine."""

    client: Any
    run: str

    def begin(self) -> None:
        """Open a run, and write its settings as parameters."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers of every call
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=self.place.absolute().as_uri())
        known = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else self.client.create_experiment(EXPERIMENT)
        self.run = self.client.create_run(experiment, run_name=self.name).info.run_id
        for key, value in self.settings.items():
            self.client.log_param(self.run, _key(key), str(value)[:_LONGEST])

    def number(self, name: str, value: float, step: int) -> None:
        """Write one metric."""
        self.client.log_metric(self.run, _key(name), value, step=step)

    def end(self, finished: bool) -> None:
        """Say how the run has ended."""
        self.client.set_terminated(self.run, "FINISHED" if finished else "FAILED")


def _key(name: str) -> str:
    """A name with the signs alone that MLflow allows."""
    return re.sub(r"[^A-Za-z0-9_\-. /]", "_", name)
