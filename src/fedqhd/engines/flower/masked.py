"""Secure aggregation by Flower's SecAgg+: clients mask what they send, the masks cancel in the sum, and so the server
learns the mean and nothing else of W or Q. Four messages a round instead of one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.serverapp import Grid

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload, Reply
from fedqhd.engines.flower.grid import Mailbox, Patience
from fedqhd.engines.flower.records import ABOUT, METRICS, ghosts, shapes, write_reply
from fedqhd.federation.wrappers.uplink import as_real

log = logging.getLogger(__name__)

THRESHOLD = 0.6
"""Share of the clients that it takes to unmask the mean of those who are left, or anyone."""
COLLECTED = 2
"""The stage in which masked replies come; keys and shares of them come before, and what unmasks the sum after."""


def is_masked(content: RecordDict) -> bool:
    return RECORD_KEY_CONFIGS in content.config_records


def mask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A client's part of the protocol, in a round that is masked."""
    if not is_masked(message.content):
        return call_next(message, context)
    from flwr.client.mod import secaggplus_mod  # which loads cryptography that other rounds have no use for

    return secaggplus_mod(message, context, call_next)


def write_masked(reply: Reply, cpu: float, largest: float) -> RecordDict:
    """A reply as the protocol takes it: it masks the arrays, and leaves the rest."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.compat.common.recorddict_compat import fitres_to_recorddict

    for name, v in reply.payload.items():
        top = float(np.abs(as_real(v)).max()) if v.size else 0.0
        if not top <= largest:
            raise FedQHDError(f"its {name} goes up to {top:.3g}, beyond secure_range={largest:g}")
    arrays = [as_real(reply.payload[name]).astype(np.float64) for name in sorted(reply.payload)]
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), 1, {})
    content, plain = fitres_to_recorddict(result, False), write_reply(reply._replace(payload={}), cpu)
    about = {**plain.config_records[ABOUT], "shapes": json.dumps(shapes(reply.payload))}
    plain[ABOUT] = ConfigRecord(about)
    for name in (METRICS, ABOUT):
        content[name] = plain[name]
    return content


class Node(NamedTuple):
    node_id: int


class Courier:
    """A grid for the protocol, with our patience; keeps what was answered in each stage."""

    def __init__(self, mailbox: Mailbox, patience: Patience) -> None:
        self.mailbox, self.patience = mailbox, patience
        self.stages: list[dict[int, Message]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        self.stages.append(dict(self.mailbox.ask(messages, self.patience)))
        return list(self.stages[-1].values())


class Plan:
    """What the protocol takes for a strategy: whom to ask, and where the mean goes."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = list(nodes)
        self.mean: list[Array] | None = None

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[tuple[Node, Any]]:
        from flwr.common import FitIns, Parameters

        return [(Node(node), FitIns(Parameters([], ""), {})) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        from flwr.common import parameters_to_ndarrays

        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def exchange(
    mailbox: Mailbox, patience: Patience, questions: Mapping[int, Message], largest: float
) -> tuple[dict[int, Message], Payload | None]:
    """The answers of the clients, without their arrays, and the mean of those; None where it cannot be had."""
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

    class Workflow(SecAggPlusWorkflow):
        def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
            going_on = super().setup_stage(grid, context, state)
            # What clients are asked is ours to say; a record each, to which the protocol adds its own.
            state.nid_to_fitins = {
                q.metadata.dst_node_id: RecordDict(cast(Any, dict(q.content))) for q in questions.values()
            }
            return going_on

    who = {question.metadata.dst_node_id: client for client, question in questions.items()}
    plan, courier = Plan(who), Courier(mailbox, patience)
    records: dict[str, Any] = {
        MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: 1}),
        MAIN_PARAMS_RECORD: ArrayRecord(),
    }
    context = LegacyContext(Context(0, 0, {}, RecordDict(records), {}), strategy=cast(Any, plan))
    mean = None
    try:
        # All weigh alike; and as many levels as leave room for the sum of a thousand clients.
        Workflow(1.0, THRESHOLD, max_weight=1.0, clipping_range=largest)(cast(Grid, courier), context)
        mean = None if plan.mean is None else unmasked(plan.mean, courier.stages[COLLECTED].values())
    except Exception as error:  # what clients sent may be anything, and nobody can look whose it is
        log.warning("the masked replies cannot be added up (%s: %s)", type(error).__name__, error)
    collected = courier.stages[COLLECTED] if len(courier.stages) > COLLECTED else {}
    return {who[node]: answer for node, answer in sorted(collected.items(), key=lambda a: who[a[0]])}, mean


def unmasked(mean: list[Array], answers: Iterable[Message]) -> Payload:
    """The mean under the names and types that the clients say, who must agree."""
    (described,) = {str(a.content.config_records[ABOUT]["shapes"]) for a in answers if not a.has_error()}
    like = ghosts(json.loads(described))
    return {
        name: v.astype(like[name].real.dtype).view(like[name].dtype)
        for name, v in zip(sorted(like), mean, strict=True)
    }  # fmt: skip
