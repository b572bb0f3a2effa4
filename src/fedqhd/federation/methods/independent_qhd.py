"""Independent QHD: clients learn alone and exchange nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedqhd.core.config import Config
from fedqhd.core.protocols import Client, Expected, Federation, Payload, Reply
from fedqhd.envs.public import Public
from fedqhd.federation.method import Method, Style
from fedqhd.federation.terms import Terms


@dataclass(frozen=True, eq=False)
class Independent:
    """No federation: nothing is sent or installed. Targets are still synced at every round boundary."""

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return {}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return {}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.sync_target()


class IndependentQHD(Method):
    """N clients that each train their own readout without a federation."""

    name: ClassVar[str] = "independent-qhd"
    style: ClassVar[Style] = Style("#56b4e9", (4, 2), rank=1)
    federated: ClassVar[bool] = False
    seeds: ClassVar[int] = 10

    def federation(self, terms: Terms, public: Public) -> Federation:
        return Independent()

    @classmethod
    def tuning_variant(cls, c: Config) -> dict[str, Any]:
        """Try a larger bandwidth, since there is no exchange to vary."""
        return {"sigma": 1.25 * c.sigma}
