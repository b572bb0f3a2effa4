"""Oracle QHD: one readout that learns from the data of all clients, which a federation must keep apart."""

from __future__ import annotations

from typing import Any, ClassVar

from fedqhd.core.config import Config
from fedqhd.core.protocols import Federation
from fedqhd.envs.public import Public
from fedqhd.federation.method import Method, Style
from fedqhd.federation.methods.independent_qhd import Independent
from fedqhd.federation.terms import Terms


class Oracle(Method):
    """One agent that plays in the environments of all clients; if their models differ in size, it has the largest."""

    pooled: ClassVar[bool] = True
    federated: ClassVar[bool] = False

    def federation(self, terms: Terms, public: Public) -> Federation:
        return Independent()

    @classmethod
    def tuning_variant(cls, c: Config) -> dict[str, Any]:
        """Try a larger replay memory, because an oracle receives the data of all clients."""
        return {"replay_size": 2 * c.replay_size}


class OracleQHD(Oracle):
    """The pooled readout."""

    name: ClassVar[str] = "oracle-qhd"
    style: ClassVar[Style] = Style("#000000", (6, 2), rank=6)
