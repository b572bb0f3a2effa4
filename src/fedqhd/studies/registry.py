"""All studies by name; each is imported only when it is needed."""

from __future__ import annotations

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.named import load
from fedqhd.studies.study import Study

STUDIES = {
    "main": "main:Main",
    "tune": "tune:Tune",
    "curves": "curves:Curves",
    "cost": "cost:Cost",
    "ablation-dim": "ablation_dim:AblationDim",
    "ablation-anchors": "ablation_anchors:AblationAnchors",
    "scalability": "scalability:Scalability",
    "robustness": "robustness:Robustness",
    "returns": "returns:Returns",
    "methods": "methods:Methods",
    "closed-form": "closed_form:ClosedForm",
    "learners": "learners:Learners",
    "options": "options:Options",
    "features": "features:Features",
    "attacks": "attacks:Attacks",
    "participation": "participation:Participation",
    "privacy": "privacy:Privacy",
    "own-envs": "own_envs:OwnEnvs",
    "exchange-error": "exchange_error:ExchangeError",
    "theory": "theory:Theory",
}
"""The classes of all studies, in the order in which they are listed, run and reported."""
ALL = "all"
"""The word on the command line for all studies of the paper."""


def study(name: str) -> Study:
    """Return a study by its name, or a study of the user by `module:Class`.

    Raises:
        FedQHDError: If there is no such study, or if the class cannot be used as one.
    """
    if name in STUDIES:
        return load(f"fedqhd.studies.{STUDIES[name]}", "study")()
    if ":" not in name:
        near = nearest(name, [*STUDIES, ALL])
        raise FedQHDError(
            f"study={name!r} is unknown{near}: choose a name from fedqhd reproduce --list, or give module:Class"
        )
    found = load(name, "study")
    if not (isinstance(found, type) and issubclass(found, Study)):
        raise FedQHDError(f"study={name!r} is not a study: a subclass of fedqhd.studies.study.Study is needed")
    created = found()
    if not created.name or created.name in STUDIES or not created.key:
        raise FedQHDError(
            f"study={name!r} has name={created.name!r} and key={tuple(created.key)}: it needs a name that no other "
            "study has, for its result file, and a key with the names of the values that identify a row"
        )
    return created


def every() -> list[Study]:
    """Return all studies of the package."""
    return [study(name) for name in STUDIES]


def studies(name: str) -> list[Study]:
    """Return the studies that a name on the command line stands for: one study, or those of the paper for "all"."""
    return [s for s in every() if s.in_all] if name == ALL else [study(name)]
