"""Refuses settings that cannot be run, in one sentence each, before anything runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.runs.choices import ENCODERS, QHD_METHODS
from fedqhd.runs.private import check_privacy

if TYPE_CHECKING:
    from fedqhd.runs.config import Config


def hidden_widths(kind: str) -> tuple[int, ...]:
    """() for `qhd`, the hidden widths for `dqn:64` or `dqn:128x128`."""
    name, _, widths = kind.partition(":")
    if kind == "qhd":
        return ()
    if name == "dqn" and widths and all(w.isdecimal() and int(w) >= 1 for w in widths.split("x")):
        return tuple(int(w) for w in widths.split("x"))
    raise FedQHDError(f"agents={kind!r} is unknown{nearest(name, ('qhd', 'dqn'))}: give qhd, dqn:64 or dqn:128x128")


def parse_range(spec: str) -> tuple[str, float, float]:
    """(name, low, high) of `name=low:high`."""
    name, _, bounds = spec.partition("=")
    low, _, high = bounds.partition(":")
    try:
        parsed = name, float(low), float(high)
        if name and math.isfinite(parsed[1]) and math.isfinite(parsed[2]) and parsed[1] <= parsed[2]:
            return parsed
    except ValueError:
        pass
    raise FedQHDError(f"dynamics={spec!r} is no range: give NAME=LOW:HIGH with LOW at most HIGH, e.g. gravity=8:12")


def parse_presence(spec: str) -> tuple[int, tuple[int, int]]:
    """(client, (first, last)) of `client=first:last`; without a last round it stays."""
    client, _, span = spec.partition("=")
    first, colon, last = span.partition(":")
    numbers = (client, first, last or "0")
    if colon and all(x.isdecimal() and len(x) < 10 for x in numbers) and (not last or int(first) <= int(last)):
        return int(client), (int(first), int(last) if last else 10**9)
    raise FedQHDError(f"present={spec!r} is no span of rounds: give CLIENT=FIRST:LAST, e.g. 3=10:20, or 3=10: to stay")


def check_federation(c: Config, need: Callable[[bool, str, str], None]) -> None:
    """Who takes part, and what the server makes of their replies."""
    need(c.max_magnitude > 0, "max_magnitude", "it must be above 0")
    most = max(1, round(c.participation * c.clients))
    need(c.min_clients <= most, "min_clients",
         f"of clients={c.clients} only {most} take part in a round")  # fmt: skip
    for name in ("late", "late_weight", "liars"):
        need(0 <= getattr(c, name) <= 1, name, "it must be from 0 to 1")
    need(0 < c.participation <= 1, "participation", "it must be above 0 and at most 1")
    spans = dict(map(parse_presence, c.present))
    need(len(spans) == len(c.present) and max(spans, default=0) < c.clients, "present",
         f"give each of the clients 0 to {c.clients - 1} once at most")  # fmt: skip
    rounds = range(-(-c.episodes // c.round_episodes))
    if len(spans) == c.clients:
        gap = next((k for k in rounds if not any(lo <= k <= hi for lo, hi in spans.values())), None)
        need(gap is None, "present", f"no client is there in round {gap}")
    pooled = c.method.startswith("oracle")
    for name, plain in (("participation", 1.0), ("present", ()), ("late", 0.0)):
        need(not pooled or getattr(c, name) == plain, name, f"{c.method} is one learner, which is always there")
    federated = not pooled and c.method != "independent-qhd"
    need(c.attack == "none" or round(c.liars * c.clients) >= 1, "liars", f"of clients={c.clients} that is nobody")
    need(c.attack == "none" or federated, "attack", f"{c.method} sends nothing that could be falsified")
    moving = c.anchor_source == "teacher" and (c.setting == "heterogeneous" or c.weights == "precision")
    need(not (c.late and c.late_weight and moving), "late_weight",
         "with anchor_source=teacher the anchors have moved on when a late reply comes: give 0")  # fmt: skip
    sums = {"exchange": "statistics", "weights": "precision"}
    for name, value in sums.items():
        fits = ("auto", "mean") if name == "exchange" else ("auto", "mean", "multi-krum")
        need(getattr(c, name) != value or c.aggregate in fits, "aggregate",
             f"with {name}={value} replies are added up: choose {' or '.join(fits)}")  # fmt: skip


def check(c: Config) -> None:
    """Refuse what cannot be run, before anything runs."""
    for f in dataclasses.fields(c):
        name, value, choices = f.name, getattr(c, f.name), f.metadata["choices"]
        if choices and value not in choices and not (name == "aggregate" and ":" in value):
            raise FedQHDError(
                f"{name}={value!r} is unknown{nearest(str(value), choices)}: choose from {', '.join(choices)}"
            )
        for x in value if isinstance(value, tuple) else (value,):
            if isinstance(x, float) and not math.isfinite(x):
                raise FedQHDError(f"{name}={x} must be a finite number")

    def need(ok: bool, name: str, rule: str) -> None:
        if not ok:
            raise FedQHDError(f"{name}={getattr(c, name)} is not possible: {rule}")

    for f in dataclasses.fields(c):
        least = 0 if f.name in ("seed", "fit_steps", "learning_starts") else 1
        if f.type == "int":
            need(getattr(c, f.name) >= least, f.name, f"it must be at least {least}")
    for name in c.encoder:
        need(name in ENCODERS or ":" in name, "encoder",
             f"{name!r} is unknown{nearest(name, ENCODERS)}: give {', '.join(ENCODERS)} or module:name")  # fmt: skip
    need(len(c.encoder) == 1 or (len(c.encoder) > 1 and c.setting == "heterogeneous"), "encoder",
         f"setting={c.setting} has one for all clients")  # fmt: skip
    need(len(c.dims) > 0 and min(c.dims, default=0) >= 1, "dims", "give dimensions of at least 1")
    need(min(c.widths, default=0) >= 1, "widths", "give widths of at least 1")
    for name in ("sigma", "lr", "huber", "temperature"):
        need(getattr(c, name) > 0, name, "it must be above 0")
    need(0 <= c.sigma_spread < 1, "sigma_spread", "it must be at least 0 and below 1")
    for name in ("lam", "fit_lam", "bonus"):
        need(getattr(c, name) >= 0, name, "it must be at least 0")
    solves = c.learner == "least-squares" and c.method in QHD_METHODS and all(k == "qhd" for k in c.agents)
    need(c.weights != "precision" or (solves and c.method == "fedqhd"), "weights",
         "only method=fedqhd with learner=least-squares knows how certain it is")  # fmt: skip
    need(c.weights != "precision" or c.anchor_source != "visited", "anchor_source",
         "precision weights take anchors that no client gave: rollout, uniform, mix, file or teacher")  # fmt: skip
    need(c.explore != "bonus" or solves, "explore", "only learner=least-squares knows where it is uncertain")
    need(c.exchange != "statistics" or (solves and c.method == "fedqhd" and c.setting == "homogeneous"), "exchange",
         "normal equations add up for method=fedqhd with learner=least-squares and one encoder")  # fmt: skip
    for name in ("gamma", "trace"):
        need(0 <= getattr(c, name) <= 1, name, "it must be from 0 to 1")
    need(c.eta > 0, "eta", "it must be above 0")
    need(
        0 <= c.epsilon_end <= c.epsilon_start <= 1,
        "epsilon_start",
        f"1 >= epsilon_start >= epsilon_end={c.epsilon_end} >= 0 is needed",
    )
    for name in ("epsilon_decay", "eta_decay", "damping", "refit", "target_tau"):
        need(0 < getattr(c, name) <= 1, name, "it must be above 0 and at most 1")
    need(c.batch_size <= c.replay_size, "batch_size", f"it must be at most replay_size={c.replay_size}")
    need(c.anchor_source != "file" or bool(c.anchor_file), "anchor_source", "give the file's name in anchor_file")
    need(
        c.method != "fedavg-dqn" or c.setting == "homogeneous", "setting",
        "fedavg-dqn averages parameters, and networks of different widths have none in common; distilled-feddqn can",
    )  # fmt: skip
    need(
        c.method != "distilled-feddqn" or c.anchor_source not in ("teacher", "visited"), "anchor_source",
        "distilled-feddqn takes anchors that stay as they are: rollout, uniform, mix or file",
    )  # fmt: skip
    for kind in c.agents:
        hidden_widths(kind)
    need(
        not c.agents or (c.method == "fedqhd" and c.setting == "heterogeneous"), "agents",
        f"kinds of agents have no parameters in common to average, only values on anchors: give "
        f"method=fedqhd and setting=heterogeneous, not {c.method} and {c.setting}",
    )  # fmt: skip
    for spec in c.dynamics:
        parse_range(spec)
    check_federation(c, need)
    check_privacy(c, need)
    if isinstance(c.weights, str):
        names = ("uniform", "steps", "precision")
        need(c.weights in names, "weights", "choose uniform, steps, precision, or give one number a client")
    else:
        total = sum(c.weights)
        need(len(c.weights) == c.clients, "weights", f"give one number a client, {c.clients} in all")
        need(
            min(c.weights) >= 0 and abs(total - 1) <= 1e-6, "weights", f"they must be >= 0 and sum to 1, not {total:g}"
        )
