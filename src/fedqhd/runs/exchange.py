"""The last exchange of a run, saved beside its models: the clients' models before it, the teacher and the anchors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd.agents.client import LocalClient
from fedqhd.agents.model import code_names, load_model, note_of
from fedqhd.core.engine import Engine
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_arrays, write_arrays
from fedqhd.core.protocols import Array, Federation, Model, Payload, under
from fedqhd.core.trust import check_code
from fedqhd.federation import ThroughAnchors, unwrapped


class Exchange(NamedTuple):
    """The last exchange of a run through anchors."""

    anchors: Array
    """Scaled states, (m, n)."""
    Q: Array
    """The teacher Q_bar at the anchors, (m, A)."""
    pi: Array
    """The weights of the clients, (N,); 0 for a client whose reply did not count."""
    before: list[Model]
    """The clients' models before they compiled the teacher."""

    def teacher(self, Z: Array) -> Array:
        """Return Q_bar = sum_j pi_j Q_j, (B, A), at any scaled states (B, n), summed in client order."""
        return sum(p * m.q(Z).astype(np.float64) for p, m in zip(self.pi, self.before, strict=True))


def path_of(folder: str | Path) -> Path:
    """Return the file of the last exchange of a run in `folder`."""
    return Path(folder) / "models" / "exchange.npz"


def model_of(client: LocalClient) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return a client's model as the arrays and the note of its file.

    In this form it can be sent between processes; a model with the user's own encoder may not be picklable.
    """
    model = client.agent.model()
    return model.arrays(), note_of(model)


def save(folder: Path, engine: Engine, federation: Federation, weights: Mapping[int, float], teacher: Payload) -> None:
    """Save the last exchange, between the last report and the last install.

    Nothing is written for federations without anchors, if the engine cannot reach its clients, or if the last teacher
    was taken back, because it is then not made of these models.

    Args:
        folder: The folder of the run.
        engine: Where the clients live.
        federation: What they exchange.
        weights: The weights of the clients whose replies went into the teacher.
        teacher: The last teacher.
    """
    federation = unwrapped(federation)
    if not isinstance(federation, ThroughAnchors) or "Q" not in teacher or not weights:
        return
    models = engine.each(model_of)
    if not models:
        return
    arrays = {f"before.{i}.{k}": v for i, (model, _) in enumerate(models) for k, v in model.items()}
    pi = np.array([weights.get(i, 0.0) for i in range(len(models))])
    write_arrays(
        path_of(folder),
        {
            "anchors": federation.anchors_of(teacher), "Q": teacher["Q"], "pi": pi / pi.sum(),
            **arrays,
        },
        {"before": [about for _, about in models], "one_pi": federation.is_mean},
    )  # fmt: skip


def load(run: str | Path) -> Exchange:
    """Load the last exchange of a finished run.

    Args:
        run: The folder of the run.

    Raises:
        FedQHDError: If the run has none, or if its teacher is not a weighted mean of the clients.
    """
    path = path_of(run)
    if not path.exists():
        raise FedQHDError(
            f"run={str(run)!r} has no {path.name} among its models: the gap is defined for values compiled at anchors, "
            "so give a finished run of method=fedqhd with setting=heterogeneous (clients with one encoder average W, "
            "which is exact)"
        )
    arrays, about = read_arrays(path)
    check_exchange(path, arrays, about)
    if not about["one_pi"]:
        raise FedQHDError(
            f"run={str(run)!r} has weights=precision or an aggregate such as median, whose teacher is defined only at "
            "the anchors: give a run whose teacher is one weighted mean of the clients (mean, auto or multi-krum)"
        )
    models = [load_model(under(arrays, f"before.{i}."), a, str(path)) for i, a in enumerate(about["before"])]
    return Exchange(arrays["anchors"], arrays["Q"], arrays["pi"], models)


def check_exchange(path: Path, arrays: Payload, about: Mapping[str, Any]) -> None:
    """Raise FedQHDError if the file of an exchange is damaged, or names code that is not trusted."""
    before = about.get("before")
    if not isinstance(before, list) or not all(isinstance(note, dict) for note in before) or "one_pi" not in about:
        raise damaged(path, "its note is not that of an exchange")
    for name in ("anchors", "Q", "pi"):
        if name not in arrays or not np.isfinite(arrays[name]).all():
            raise damaged(path, f"{name!r} is missing or not finite")
    if arrays["pi"].shape != (len(before),) or arrays["anchors"].ndim != 2 or arrays["Q"].ndim != 2:
        raise damaged(path, "its arrays do not have the shapes of an exchange")
    check_code([name for note in before for name in code_names(note)], path)
