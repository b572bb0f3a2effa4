"""Messages as Flower records: named arrays, numbers and strings, never pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedqhd.core.engine import Trial
from fedqhd.core.protocols import Array, Episode, Payload, Reply
from fedqhd.federation import Participant, Terms
from fedqhd.federation.wrappers.uplink import Coded, decode, shortened

ARRAYS, METRICS, ABOUT = "arrays", "metrics", "about"
"""The names of the three records of a message."""


def array_record(payload: Payload) -> ArrayRecord:
    """Return a payload as a Flower record."""
    return ArrayRecord({name: FlowerArray(np.asarray(v)) for name, v in payload.items()})


def payload_of(record: ArrayRecord) -> dict[str, Array]:
    """Return a Flower record as a payload."""
    return {name: v.numpy() for name, v in record.items()}


def write_greeting(greeting: Mapping[str, str]) -> RecordDict:
    """Write what a node must know to make its client.

    Every order repeats it, because every message may be handled by a new process.
    """
    return RecordDict({ABOUT: ConfigRecord(dict(greeting))})


class Order(NamedTuple):
    """What the server asks of a client in one exchange of a run."""

    run: str
    exchange: int
    episodes: int
    terms: Terms
    teacher: Payload | None
    """None in the first round."""
    trial: Trial | None = None
    """The question to answer instead of training; None in an ordinary exchange."""


def write_order(order: Order, greeting: Mapping[str, str]) -> RecordDict:
    """Write an order as the content of a message."""
    about: dict[str, Any] = {
        **greeting,
        "run": order.run,
        "exchange": order.exchange,
        "episodes": order.episodes,
        "terms": json.dumps([order.terms.same_encoder, shapes(order.terms.like)]),
        "first": order.teacher is None,
        "trial": json.dumps(order.trial),
    }
    return RecordDict({ARRAYS: array_record(order.teacher or {}), ABOUT: ConfigRecord(about)})


def read_order(content: RecordDict) -> Order:
    """Read what `write_order` wrote."""
    about: Mapping[str, Any] = content.config_records[ABOUT]
    same_encoder, like = json.loads(about["terms"])
    teacher = None if about["first"] else payload_of(content.array_records[ARRAYS])
    asked = json.loads(about["trial"])
    return Order(
        about["run"], about["exchange"], about["episodes"], Terms(same_encoder, placeholders(like)), teacher,
        asked and Trial(*asked),
    )  # fmt: skip


def write_reply(reply: Reply, cpu: float, uplink: str = "full") -> RecordDict:
    """Write a reply as the content of a message.

    Args:
        reply: The client's reply.
        cpu: The CPU seconds that the client spent on the round.
        uplink: The number format to which its report was rounded.
    """
    arrays, coded = dict(reply.payload), {}
    for name, v in reply.payload.items():
        short = shortened(v, uplink)
        if short is not None:
            arrays[name], coded[name] = short.codes, [v.dtype.str, short.unit]
    played = Episode(*zip(*reply.episodes, strict=True)) if reply.episodes else Episode(*([[]] * 5))  # type: ignore[arg-type]
    metrics: dict[str, Any] = {
        "num-examples": reply.steps,
        "weight": float(reply.weight),
        "cpu": cpu,
        **{f"episodes/{name}": list(column) for name, column in played._asdict().items()},
        **{f"seconds/{name}": float(value) for name, value in reply.seconds.items()},
    }
    about: dict[str, Any] = {
        "client": reply.client, "fingerprint": reply.fingerprint, "coded": json.dumps(coded),
    }  # fmt: skip
    return RecordDict({ARRAYS: array_record(arrays), METRICS: MetricRecord(metrics), ABOUT: ConfigRecord(about)})


def read_reply(content: RecordDict) -> tuple[Reply, float]:
    """Read what `write_reply` wrote: the reply and its CPU seconds. A malformed message may raise any exception."""
    about: Mapping[str, Any] = content.config_records[ABOUT]
    metrics: dict[str, Any] = dict(content.metric_records[METRICS])
    # A masked reply has no arrays that could be read.
    payload = payload_of(content.array_records[ARRAYS]) if ARRAYS in content.array_records else {}
    for name, (dtype, unit) in json.loads(about["coded"]).items():
        if np.dtype(dtype).kind not in "fc" or payload[name].dtype.kind not in "fi":
            raise ValueError(f"its {name} is coded as {payload[name].dtype}, which cannot stand for {dtype}")
        payload[name] = decode(Coded(payload[name], float(unit)), np.dtype(dtype))
    columns = [metrics[f"episodes/{name}"] for name in Episode._fields]
    reply = Reply(
        client=about["client"],
        payload=payload,
        weight=metrics["weight"],
        steps=metrics["num-examples"],
        episodes=tuple(Episode(*row) for row in zip(*columns, strict=True)),
        fingerprint=about["fingerprint"],
        seconds={name.removeprefix("seconds/"): v for name, v in metrics.items() if name.startswith("seconds/")},
    )
    return reply, float(metrics["cpu"])


def write_trial(returns: Array) -> RecordDict:
    """Write the returns of a trial as the content of a message."""
    return RecordDict({ARRAYS: array_record({"returns": returns})})


def read_trial(content: RecordDict, trial: Trial) -> Array:
    """Read what `write_trial` wrote. Raises ValueError if it cannot be the answer to this question."""
    returns = payload_of(content.array_records[ARRAYS])["returns"]
    if returns.ndim != 2 or returns.shape[1] != trial.episodes or returns.dtype.kind != "f":
        raise ValueError(f"it answered with {returns.dtype} of shape {returns.shape} to {trial.episodes} episodes")
    return returns


class Introduction(NamedTuple):
    """How a node introduces its client."""

    client: int
    member: Participant
    world: str
    """The fingerprint of the anchors, scaling and actions that it uses."""


def write_introduction(introduction: Introduction) -> RecordDict:
    """Write an introduction as the content of a message."""
    fingerprint, weight, like = introduction.member
    about: dict[str, Any] = {
        "client": introduction.client,
        "fingerprint": fingerprint,
        "weight": json.dumps(weight),
        "like": json.dumps(shapes(like)),
        "world": introduction.world,
    }
    return RecordDict({ABOUT: ConfigRecord(about)})


def read_introduction(content: RecordDict) -> Introduction:
    """Read what `write_introduction` wrote."""
    about: Mapping[str, Any] = content.config_records[ABOUT]
    member = Participant(about["fingerprint"], json.loads(about["weight"]), placeholders(json.loads(about["like"])))
    return Introduction(about["client"], member, about["world"])


def shapes(like: Payload) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type and shape of each array."""
    return {name: (v.dtype.str, v.shape) for name, v in like.items()}


def placeholders(described: Mapping[str, Any]) -> dict[str, Array]:
    """Return arrays of zeros with the types and shapes that `shapes` returned; they take almost no memory."""
    return {name: np.broadcast_to(np.zeros((), dtype), shape) for name, (dtype, shape) in described.items()}
