"""Secure aggregation with Flower's SecAgg+.

Clients mask what they send and the masks cancel in the sum, so the server learns nothing of W or Q but the mean. A
round takes four messages per client instead of one.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.serverapp import Grid

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload, Reply
from fedqhd.engines.flower.grid import Mailbox, Patience
from fedqhd.engines.flower.records import placeholders, write_reply
from fedqhd.engines.flower.schema import ABOUT, METRICS, SHAPES
from fedqhd.federation.terms import shapes
from fedqhd.federation.wrappers.settings import SECURE_CLIENTS
from fedqhd.federation.wrappers.uplink import as_real

log = logging.getLogger(__name__)

THRESHOLD = 0.6
"""The share of the clients whose cooperation is needed to unmask anything, be it the mean or a single reply. These are
never fewer than SECURE_CLIENTS."""
COLLECTED = 2
"""The index of the stage in which masked replies arrive. The stages before it exchange keys and their shares, the stage
after it unmasks the sum."""


def is_masked(content: RecordDict) -> bool:
    """Tell whether a message is part of the SecAgg+ protocol."""
    return RECORD_KEY_CONFIGS in content.config_records


def mask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Run a client's part of the protocol in masked rounds; a mod of the ClientApp."""
    if not is_masked(message.content):
        return call_next(message, context)
    check_threshold(message.content)
    from flwr.client.mod import secaggplus_mod  # it loads cryptography, which other rounds do not need

    return secaggplus_mod(message, context, call_next)


def check_threshold(content: RecordDict) -> None:
    """Raise FedQHDError if the server wants to unmask the sum of fewer than SECURE_CLIENTS replies.

    Its first message names the threshold, and the protocol holds every client to it from then on.
    """
    threshold = content.config_records[RECORD_KEY_CONFIGS].get(Key.THRESHOLD, SECURE_CLIENTS)
    if not isinstance(threshold, int) or threshold < SECURE_CLIENTS:
        raise FedQHDError(
            f"the server would unmask the sum of {threshold!r:.20} replies, but at least {SECURE_CLIENTS} are needed "
            "to hide each of them"
        )


def write_masked(reply: Reply, cpu: float, secure_range: float) -> RecordDict:
    """Write a reply in the form that the protocol expects; it masks the arrays and leaves the rest readable.

    Args:
        reply: The client's reply.
        cpu: The CPU seconds that the client spent on the round.
        secure_range: The largest absolute value that the arrays may hold.

    Raises:
        FedQHDError: If a value is beyond `secure_range`, which the protocol would silently clip.
    """
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.compat.common.recorddict_compat import fitres_to_recorddict

    for name, v in reply.payload.items():
        top = float(np.abs(as_real(v)).max()) if v.size else 0.0
        if not top <= secure_range:
            raise FedQHDError(f"its {name} goes up to {top:.3g}, beyond secure_range={secure_range:g}")
    arrays = [as_real(reply.payload[name]).astype(np.float64) for name in sorted(reply.payload)]
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), 1, {})
    content, plain = fitres_to_recorddict(result, False), write_reply(reply._replace(payload={}), cpu)
    about = {**plain.config_records[ABOUT], "shapes": json.dumps(shapes(reply.payload))}
    plain[ABOUT] = ConfigRecord(about)
    for name in (METRICS, ABOUT):
        content[name] = plain[name]
    return content


class Node(NamedTuple):
    """What the protocol expects of a client proxy."""

    node_id: int


class Courier:
    """The grid that the protocol sees. It waits with our patience and keeps the answers of each stage."""

    def __init__(self, mailbox: Mailbox, patience: Patience) -> None:
        self.mailbox, self.patience = mailbox, patience
        self.stages: list[dict[int, Message]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send the messages of a stage and return the answers that come in time."""
        self.stages.append(dict(self.mailbox.ask(messages, self.patience)))
        return list(self.stages[-1].values())


class Plan:
    """The strategy that the protocol sees: it names the nodes to ask and receives the mean."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = list(nodes)
        self.mean: list[Array] | None = None

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[tuple[Node, Any]]:
        """Return the nodes to ask, with empty instructions."""
        from flwr.common import FitIns, Parameters

        return [(Node(node), FitIns(Parameters([], ""), {})) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        """Keep the mean, which the protocol passes in the first result."""
        from flwr.common import parameters_to_ndarrays

        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def exchange(
    mailbox: Mailbox, patience: Patience, questions: Mapping[int, Message], secure_range: float
) -> tuple[dict[int, Message], Payload | None]:
    """Run one masked round.

    Args:
        mailbox: Sends the messages.
        patience: How long to wait in each stage.
        questions: The message to each client.
        secure_range: The largest absolute value in a reply.

    Returns:
        The answers by client, without their arrays, and the mean of the arrays; None if it could not be unmasked.
    """
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
    from flwr.server.workflow.constant import Key as ContextKey

    class Workflow(SecAggPlusWorkflow):
        def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
            continues = super().setup_stage(grid, context, state)
            # Replace the protocol's instructions with our messages, one record per client, to which it adds its own.
            state.nid_to_fitins = {
                q.metadata.dst_node_id: RecordDict(cast(Any, dict(q.content))) for q in questions.values()
            }
            return continues

    who = {question.metadata.dst_node_id: client for client, question in questions.items()}
    plan, courier = Plan(who), Courier(mailbox, patience)
    records: dict[str, Any] = {
        MAIN_CONFIGS_RECORD: ConfigRecord({ContextKey.CURRENT_ROUND: 1}),
        MAIN_PARAMS_RECORD: ArrayRecord(),
    }
    context = LegacyContext(Context(0, 0, {}, RecordDict(records), {}), strategy=cast(Any, plan))
    mean = None
    try:
        # All clients have weight 1. The default quantisation leaves room for the sum of a thousand clients.
        needed = max(THRESHOLD, SECURE_CLIENTS / len(questions))
        Workflow(1.0, needed, max_weight=1.0, clipping_range=secure_range)(cast(Grid, courier), context)
        mean = None if plan.mean is None else unmasked(plan.mean, courier.stages[COLLECTED].values())
    except Exception as error:  # clients may have sent anything, and nobody can tell who sent what
        log.warning("the masked replies cannot be added up (%s: %s)", type(error).__name__, error)
    collected = courier.stages[COLLECTED] if len(courier.stages) > COLLECTED else {}
    return {who[node]: answer for node, answer in sorted(collected.items(), key=lambda a: who[a[0]])}, mean


def unmasked(mean: list[Array], answers: Iterable[Message]) -> Payload:
    """Return the mean with the array names and types that most clients state, so that a single one decides nothing."""
    stated = [cast(Any, a.content.get(ABOUT, {})).get("shapes") for a in answers if not a.has_error()]
    ((described, _),) = Counter(text for text in stated if SHAPES.accepts(text)).most_common(1)
    like = placeholders(json.loads(described))
    return {
        name: v.astype(like[name].real.dtype).view(like[name].dtype)
        for name, v in zip(sorted(like), mean, strict=True)
    }  # fmt: skip
