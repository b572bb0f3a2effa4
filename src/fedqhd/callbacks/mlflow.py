"""A logger for MLflow; needs the extra `mlflow`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedqhd.runs.callback import Training
from fedqhd.runs.scalars import ScalarLogger, imported

LONGEST = 500
"""The longest text that MLflow takes as a parameter."""


@dataclass
class MLflow(ScalarLogger):
    """Sends the settings and numbers of a run to MLflow.

    Args:
        experiment: The name of the experiment.
        uri: Where MLflow keeps its data; by default, what the environment variable MLFLOW_TRACKING_URI says.
    """

    name: ClassVar[str] = "mlflow"

    experiment: str = "fedqhd"
    uri: str = ""

    def open(self, training: Training) -> None:
        mlflow = imported("mlflow.tracking", self.name, f"callbacks={self.name!r} needs MLflow")
        self._client: Any = mlflow.MlflowClient(self.uri or None)
        found = self._client.get_experiment_by_name(self.experiment)
        home = found.experiment_id if found else self._client.create_experiment(self.experiment)
        self._run = self._client.create_run(home, run_name=training.folder.name).info.run_id
        for key, value in training.config.values.items():
            self._client.log_param(self._run, key, str(value)[:LONGEST])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._client.log_metric(self._run, key, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)
