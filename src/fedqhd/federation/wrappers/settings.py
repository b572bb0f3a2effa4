"""The settings of the wrappers: server step, rounding, differential privacy, secure aggregation and attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.config import Config
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.envs.anchors import MOVING
from fedqhd.federation.aggregate import MEAN, RULES
from fedqhd.federation.wrappers.attacked import ATTACKS

SECURE_CLIENTS = 3
"""The least number of clients per round with secure aggregation. One of two could subtract its own reply from the mean
and learn the other's."""


@dataclass(frozen=True)
class ServerStepSettings(Settings):
    """How far the teacher moves in a round."""

    title: ClassVar[str] = "server step"

    server_step: float = setting(
        1.0, "how many times the clients' mean change the teacher moves; 1 is the mean of their reports", above=0
    )
    server_momentum: float = setting(
        0.0, "share of the teacher's last movement that is added to the next (FedAvgM)", at_least=0, below=1
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        moving = c.get("anchor_source") in MOVING
        need(c.server_momentum == 0 or not moving, "server_momentum",
             "movements at different anchors cannot be added up: give an anchor_source other than "
             + " and ".join(MOVING))  # fmt: skip
        name = "server_momentum" if c.server_step == 1 else "server_step"
        if c.values[name] == cls.__dataclass_fields__[name].default:
            return
        need(c.get("exchange", "model") == "model", name, "normal equations have no step: give exchange=model")
        need(c.get("secure", "off") == "off", name,
             "with secure aggregation the server does not see how far clients agree: give secure=off")  # fmt: skip
        need(
            not c.get("dp_clip") or "anchors" not in c,
            name,
            "differential privacy covers one report a round, and at anchors this takes two: give dp_clip=0",
        )
        need(not RULES.get(c.aggregate, MEAN).plays, name,
             "it moves the teacher away from the replies that were played: choose another aggregate")  # fmt: skip


@dataclass(frozen=True)
class UplinkSettings(Settings):
    """The precision of the numbers that clients send."""

    title: ClassVar[str] = "uplink"

    uplink: str = setting(
        "full", "number format in which clients send W or Q; full does not round", choices=("full", "float16", "int8")
    )


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """Differential privacy of a client's reports."""

    title: ClassVar[str] = "differential privacy"

    dp_clip: float = setting(
        0.0, "L2 norm to which a client's change of the teacher is clipped (0: no differential privacy)", at_least=0
    )
    dp_noise: float = setting(1.0, "standard deviation of the noise, in units of 2 dp_clip", at_least=0)
    dp_delta: float = setting(1e-5, "delta at which epsilon is reported", above=0, below=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        if c.dp_clip:
            _check_alone(c, need, "differential privacy covers only W or Q")
            need(c.get("anchor_source") != "teacher", "anchor_source",
                 "differential privacy needs fixed anchors: give rollout, uniform, mix or file")  # fmt: skip


@dataclass(frozen=True)
class SecureSettings(Settings):
    """Secure aggregation: the server sees only the mean of the replies."""

    title: ClassVar[str] = "secure aggregation"

    secure: str = setting(
        "off", "mask replies, so that the server sees only their mean (engine=flower)", choices=("off", "secagg+")
    )
    secure_range: float = setting(1000.0, "largest absolute value in a client's W or Q", above=0)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        if c.secure == "off":
            return
        _check_alone(c, need, "secure aggregation adds up replies of one shape")
        need(c.aggregate == "mean", "aggregate",
             f"with secure={c.secure} the server cannot look at single replies, so it cannot leave out those that lie: "
             "the two exclude each other; give aggregate=mean")  # fmt: skip
        need(c.weights == "uniform", "weights", f"secure={c.secure} weights all clients equally: give uniform")
        need(c.uplink == "full", "uplink", f"secure={c.secure} does its own rounding: give full")
        need(c.attack == "none", "attack", f"with secure={c.secure} a liar cannot see single replies: give none")
        need(c.late == 0, "late", f"with secure={c.secure} a late reply cannot be unmasked: give 0")
        need(c.engine in ("auto", "flower"), "engine", f"secure={c.secure} needs flower")
        fewest = round(c.participation * c.clients)
        need(fewest >= SECURE_CLIENTS, "clients",
             f"secure={c.secure} needs at least {SECURE_CLIENTS} clients per round, not {fewest}")  # fmt: skip


@dataclass(frozen=True)
class AttackSettings(Settings):
    """Attacks by lying clients, to test aggregation."""

    title: ClassVar[str] = "attacks"

    attack: str = setting("none", "what lying clients send, to test aggregation", choices=("none", *ATTACKS))
    liars: float = setting(0.2, "share of the clients that lie", at_least=0, at_most=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        nobody = c.attack != "none" and round(c.liars * c.clients) < 1
        need(not nobody, "liars", f"it must amount to at least one of clients={c.clients}")


WRAPPERS = (ServerStepSettings, UplinkSettings, PrivacySettings, SecureSettings, AttackSettings)


def _check_alone(c: Config, need: Need, reason: str) -> None:
    """Refuse settings with which clients send anything besides W or Q."""
    need(c.get("exchange", "model") == "model", "exchange", f"{reason}: give model")
    need(c.weights != "precision", "weights", f"{reason}: give uniform")
    need(c.get("anchor_source") != "visited", "anchor_source",
         f"{reason}, and no states: give rollout, uniform, mix or file")  # fmt: skip
