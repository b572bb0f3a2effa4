"""Messages as Flower records: named arrays, numbers and strings, never pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Episode, Payload, Quota, Reply
from fedqhd.engines.flower.schema import (
    ABOUT,
    ARRAYS,
    GREETING,
    INTRODUCTION,
    MASKED,
    METRICS,
    NO_OUTCOME,
    TRIAL,
    Layout,
    message_fault,
    order_layout,
    outcome_layout,
    reply_layout,
)
from fedqhd.federation import Participant, Terms
from fedqhd.federation.asked import Asked, check_record
from fedqhd.federation.terms import shapes
from fedqhd.federation.validate import Refused, need
from fedqhd.federation.wrappers.uplink import CODES, Coded, decode, shortened


def array_record(payload: Payload) -> ArrayRecord:
    """Return a payload as a Flower record."""
    return ArrayRecord({name: FlowerArray(np.asarray(v)) for name, v in payload.items()})


def payload_of(record: ArrayRecord) -> dict[str, Array]:
    """Return a Flower record as a payload."""
    return {name: v.numpy() for name, v in record.items()}


def accept(content: RecordDict, layout: Layout, besides: Set[str] = frozenset()) -> None:
    """Raise `Refused` unless an answer fits its layout; the arguments are those of `message_fault`."""
    wrong = message_fault(content, layout, besides)
    need(not wrong, "unreadable", f"its answer cannot be read: {wrong}")


def obey(content: RecordDict, layout: Layout, besides: Set[str] = frozenset()) -> None:
    """Raise FedQHDError unless a message of the server fits its layout."""
    wrong = message_fault(content, layout, besides)
    if wrong:
        raise FedQHDError(f"the server's message cannot be read: {wrong}")


def write_greeting(greeting: Mapping[str, str]) -> RecordDict:
    """Write what a node must know to make its client: the server's settings, and the names of the run and the world.

    Every order repeats the settings, because every message may be handled by a new process.
    """
    return RecordDict({ABOUT: ConfigRecord({"settings": "", **greeting})})


def read_greeting(content: RecordDict) -> Mapping[str, Any]:
    """Read what `write_greeting` wrote. Raises FedQHDError if it is something else."""
    obey(content, GREETING)
    return content.config_records[ABOUT]


class Order(NamedTuple):
    """What the server asks of a client in one exchange of a run."""

    run: str
    exchange: int
    quota: Quota
    terms: Terms
    teacher: Payload | None
    """None in the first round."""
    trial: Trial | None = None
    """The question to answer instead of training; None in an ordinary exchange."""


def write_order(order: Order, greeting: Mapping[str, str]) -> RecordDict:
    """Write an order as the content of a message."""
    about: dict[str, Any] = {
        "settings": "",
        **greeting,
        "run": order.run,
        "exchange": order.exchange,
        "episodes": order.quota.episodes,
        "steps": order.quota.steps,
        "terms": json.dumps([order.terms.same_encoder, shapes(order.terms.like)]),
        "first": order.teacher is None,
        "trial": json.dumps(order.trial),
    }
    return RecordDict({ARRAYS: array_record(order.teacher or {}), ABOUT: ConfigRecord(about)})


def read_order(content: RecordDict, training: bool) -> Order:
    """Read what `write_order` wrote.

    Args:
        content: The content of the message.
        training: Whether the message asks for training.

    Raises:
        FedQHDError: If it is something else.
    """
    obey(content, order_layout(training), MASKED)
    about: Mapping[str, Any] = content.config_records[ABOUT]
    quota = Quota(about["episodes"], about["steps"])
    if training and (quota.episodes > 0) == (quota.steps > 0):
        raise FedQHDError(
            f"the server's message cannot be read: it asks for {quota.episodes} episodes and {quota.steps} steps, and "
            "must ask for one of the two"
        )
    same_encoder, like = json.loads(about["terms"])
    teacher = None if about["first"] else payload_of(content.array_records[ARRAYS])
    asked = json.loads(about["trial"])
    return Order(
        about["run"], about["exchange"], quota, Terms(same_encoder, placeholders(like)), teacher,
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


def read_reply(content: RecordDict, asked: Asked, masked: bool = False) -> tuple[Reply, float]:
    """Read what `write_reply` wrote: the reply and its CPU seconds.

    Args:
        content: The content of the message, which may be anything.
        asked: What the client was asked for.
        masked: Whether its arrays are masked; the reply is then read without them.

    Raises:
        Refused: If the reply does not fit the schema, or is not one to what was asked.
    """
    accept(content, reply_layout(asked, masked), MASKED if masked else frozenset())
    about: Mapping[str, Any] = content.config_records[ABOUT]
    metrics: dict[str, Any] = dict(content.metric_records[METRICS])
    columns = [metrics[f"episodes/{name}"] for name in Episode._fields]
    reply = Reply(
        client=about["client"],
        payload={},
        weight=float(metrics["weight"]),
        steps=metrics["num-examples"],
        episodes=tuple(Episode(*row) for row in zip(*columns, strict=True)),
        fingerprint=about["fingerprint"],
        seconds={name.removeprefix("seconds/"): v for name, v in metrics.items() if name.startswith("seconds/")},
    )
    check_record(reply, asked)
    if not masked:
        reply = reply._replace(payload=decoded(payload_of(content.array_records[ARRAYS]), json.loads(about["coded"])))
    return reply, float(metrics["cpu"])


def decoded(payload: Payload, coded: Mapping[str, tuple[str, float]]) -> dict[str, Array]:
    """Return a payload with its shortened arrays in full; `coded` holds the number format and the unit of each."""
    full = dict(payload)
    for name, (dtype, unit) in coded.items():
        fits = name in full and full[name].ndim > 0 and full[name].dtype in [code.dtype for code in CODES.values()]
        need(fits, "unreadable", f"its answer cannot be read: {name:.40} is not a shortened array")
        try:
            with np.errstate(all="ignore"):
                full[name] = decode(Coded(full[name], float(unit)), np.dtype(dtype))
        except ValueError as error:
            raise Refused("unreadable", f"its answer cannot be read: its {name} is not {dtype} ({error})") from None
    return full


def write_trial(returns: Array) -> RecordDict:
    """Write the returns of a trial as the content of a message."""
    return RecordDict({ARRAYS: array_record({"returns": returns})})


def read_trial(content: RecordDict, trial: Trial, sites: int = 1) -> Array:
    """Read what `write_trial` wrote; `sites` is the number of environments. Raises `Refused` if it is no answer."""
    accept(content, TRIAL)
    record = content.array_records[ARRAYS]
    need(set(record) == {"returns"}, "unreadable", f"it answered with {sorted(record)!r:.80}, not with returns")
    returns = record["returns"].numpy()
    need(
        returns.shape == (sites, trial.episodes) and returns.dtype.kind == "f" and bool(np.isfinite(returns).all()),
        "trial", f"it answered with {returns.dtype} of shape {returns.shape} to {trial.episodes} episodes",
    )  # fmt: skip
    return returns


def read_outcome(content: RecordDict, sites: int) -> dict[str, Any]:
    """Read the evaluation of a client, which is empty if the server evaluates it. Raises `Refused` if it is none."""
    accept(content, outcome_layout(sites) if content.get(METRICS) else NO_OUTCOME)
    return dict(content.metric_records[METRICS])


class Introduction(NamedTuple):
    """How a node introduces its client."""

    client: int
    member: Participant
    world: str
    """The fingerprint of the anchors, scaling and actions that it uses."""
    name: str = ""
    """A name of its folder that only the server learns; it tells a client that was started again from another one."""


def write_introduction(introduction: Introduction) -> RecordDict:
    """Write an introduction as the content of a message."""
    about: dict[str, Any] = {
        "client": introduction.client,
        "fingerprint": introduction.member.fingerprint,
        "like": json.dumps(shapes(introduction.member.like)),
        "world": introduction.world,
        "name": introduction.name,
    }
    return RecordDict({ABOUT: ConfigRecord(about)})


def read_introduction(content: RecordDict) -> Introduction:
    """Read what `write_introduction` wrote. Raises `Refused` if it is something else."""
    accept(content, INTRODUCTION)
    about: Mapping[str, Any] = content.config_records[ABOUT]
    member = Participant(about["fingerprint"], like=placeholders(json.loads(about["like"])))
    return Introduction(about["client"], member, about["world"], about["name"])


def placeholders(described: Mapping[str, Any]) -> dict[str, Array]:
    """Return arrays of zeros with the types and shapes that `shapes` returned; they take almost no memory."""
    return {name: np.broadcast_to(np.zeros((), dtype), shape) for name, (dtype, shape) in described.items()}
