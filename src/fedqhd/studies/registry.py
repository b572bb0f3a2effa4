"""All studies by name; each is imported when it is asked for."""

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
"""In the order in which they are listed, made and reported."""
ALL = "all"


def study(name: str) -> Study:
    """The study of this name, or that of `module:Class` which a user wrote."""
    if name in STUDIES:
        return load(f"fedqhd.studies.{STUDIES[name]}", "study")()
    if ":" not in name:
        near = nearest(name, [*STUDIES, ALL])
        raise FedQHDError(f"study={name!r} is unknown{near}: fedqhd reproduce --list names all, or give module:Class")
    found = load(name, "study")
    if not (isinstance(found, type) and issubclass(found, Study)):
        raise FedQHDError(f"study={name!r} is no study: a subclass of fedqhd.studies.study.Study is needed")
    made = found()
    if not made.name or made.name in STUDIES or not made.key:
        raise FedQHDError(
            f"study={name!r} has name={made.name!r} and key={tuple(made.key)}: it needs a name that no other study "
            "has, which its result file is called by, and the values by which its rows are told apart"
        )
    return made


def every() -> list[Study]:
    return [study(name) for name in STUDIES]


def studies(name: str) -> list[Study]:
    """What a word of the command line stands for: one study, or all that `all` does."""
    return [s for s in every() if s.in_all] if name == ALL else [study(name)]
