"""What the loggers write can be read by the programs that they write for, without a network."""

from __future__ import annotations

import json
import sys

import pytest

from conftest import tiny
from fedqhd.callbacks import Evaluate, MLflow, NotebookProgress, TensorBoard, WandB
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.run import train
from worlds import CORRIDOR


def mean_of_round(folder, k):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    returns = [row["return"] for row in rows if row["round"] == k]
    return sum(returns) / len(returns)


def test_tensorboard_reads_what_is_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    summary = train(tiny(tmp_path, env=CORRIDOR), callbacks=[TensorBoard(), Evaluate(episodes=2)])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    mean = events.Scalars("return/mean")
    assert [event.step for event in mean] == [4, 6]
    assert mean[1].value == pytest.approx(mean_of_round(tmp_path, 1))
    assert len(events.Scalars("greedy_return/mean")) == 2
    assert events.Scalars("summary/final_return")[0].value == pytest.approx(summary["final_return"])


def test_mlflow_reads_what_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = pytest.importorskip("mlflow.tracking").MlflowClient
    uri = (tmp_path / "mlruns").as_uri()
    train(tiny(tmp_path / "run", env=CORRIDOR), callbacks=[MLflow(experiment="trial", uri=uri)])
    reader = client(uri)
    (found,) = reader.search_runs([reader.get_experiment_by_name("trial").experiment_id])
    assert found.data.params["method"] == "fedqhd"
    assert found.info.status == "FINISHED"
    history = reader.get_metric_history(found.info.run_id, "return/mean")
    assert sorted((m.step, m.value) for m in history) == [
        (4, pytest.approx(mean_of_round(tmp_path / "run", 0))),
        (6, pytest.approx(mean_of_round(tmp_path / "run", 1))),
    ]


def test_weights_and_biases_writes_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    train(tiny(tmp_path / "run", env=CORRIDOR), callbacks=[WandB(mode="offline")])
    (log,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    written = log.read_bytes()
    for name in (b"return/mean", b"return/client-1", b"summary/greedy_return", b"round_episodes"):
        assert name in written


@pytest.mark.parametrize(("callback", "module"), [(TensorBoard, "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, callback, module):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedQHDError, match=rf"callbacks='{module}' needs .*fedqhd\[{module}\]"):
        train(tiny(tmp_path, env=CORRIDOR), callbacks=[callback()])


def test_a_notebook_shows_a_bar_that_fills(tmp_path, monkeypatch):
    display = pytest.importorskip("IPython").display
    shown = []

    class Handle:
        def update(self, page):
            shown.append(page.data)

    monkeypatch.setattr(display, "display", lambda page, display_id: shown.append(page.data) or Handle())
    summary = train(tiny(tmp_path, env=CORRIDOR), callbacks=[NotebookProgress(), Evaluate(episodes=2)])
    assert 'value="0" max="12"' in shown[0]
    assert 'value="12" max="12"' in shown[-1]
    assert f"greedy return {summary['greedy_return']:.1f} at the end" in shown[-1]
