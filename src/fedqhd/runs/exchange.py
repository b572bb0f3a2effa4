"""The last exchange of a run, kept beside its models: what the clients knew before, the teacher, and its anchors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd.agents.client import LocalClient
from fedqhd.agents.model import load_model
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, write_arrays
from fedqhd.core.protocols import Array, Engine, Federation, Model, Payload, under
from fedqhd.federation import ThroughAnchors, unwrapped


class Exchange(NamedTuple):
    """Q_bar (m, A) at the scaled anchors (m, n), the clients' weights pi, and their models before they compiled it."""

    anchors: Array
    Q: Array
    pi: Array
    before: list[Model]

    def teacher(self, Z: Array) -> Array:
        """Q_bar = sum_j pi_j Q_j at any scaled states, in client order."""
        return sum(p * m.q(Z).astype(np.float64) for p, m in zip(self.pi, self.before, strict=True))


def path_of(folder: str | Path) -> Path:
    return Path(folder) / "models" / "exchange.npz"


def model_of(client: LocalClient) -> tuple[dict[str, Array], dict[str, Any]]:
    """A client's model as it is kept in a file, which it can travel as: an encoder of the user's own cannot."""
    model = client.agent.model()
    return model.arrays(), {"kind": model.kind, **model.about()}


def save(folder: Path, engine: Engine, federation: Federation, counted: Mapping[int, float], teacher: Payload) -> None:
    """Called between the last report and the last install. `counted` are the clients whose replies made the teacher,
    with their weights. Federations without anchors leave nothing, nor do clients that are out of reach."""
    federation = unwrapped(federation)
    if not isinstance(federation, ThroughAnchors) or "Q" not in teacher:
        return
    models = engine.each(model_of)
    if not models:
        return
    arrays = {f"before.{i}.{k}": v for i, (kept, _) in enumerate(models) for k, v in kept.items()}
    weights = np.array([counted.get(i, 0.0) for i in range(len(models))])
    write_arrays(
        path_of(folder),
        {
            "anchors": federation.anchors_of(teacher), "Q": teacher["Q"], "pi": weights / weights.sum(),
            **arrays,
        },
        {"before": [about for _, about in models], "one_pi": federation.is_mean},
    )  # fmt: skip


def load(run: str | Path) -> Exchange:
    """The last exchange of a finished run, or one sentence on why it has none."""
    path = path_of(run)
    if not path.exists():
        raise FedQHDError(
            f"run={str(run)!r} has no {path.name} among its models: the gap is about values compiled at anchors, as a "
            "finished run of method=fedqhd with setting=heterogeneous leaves them (clients with one encoder average W, "
            "which is exact)"
        )
    arrays, about = read_arrays(path)
    if not about["one_pi"]:
        raise FedQHDError(
            f"run={str(run)!r} has weights=precision or an aggregate such as median: its teacher is made anew at each "
            "anchor and is defined nowhere else; as one weighted mean of the clients (mean, auto, multi-krum) it is"
        )
    models = [load_model(under(arrays, f"before.{i}."), a, str(path)) for i, a in enumerate(about["before"])]
    return Exchange(arrays["anchors"], arrays["Q"], arrays["pi"], models)
