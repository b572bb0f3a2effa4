"""The base class of federations that wrap another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedqhd.core.protocols import Client, Expected, Federation, Payload, Reply


class Wrapper:
    """A federation that does what the wrapped one does. Subclasses change one of its steps."""

    def __init__(self, inner: Federation) -> None:
        self.inner = inner

    def start(self) -> Payload:
        return self.inner.start()

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return self.inner.report(client, teacher)

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return self.inner.expects(teacher)

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return self.inner.aggregate(state, replies)

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.install(client, teacher)


def unwrapped(federation: Federation) -> Federation:
    """Return the federation inside all wrappers."""
    while isinstance(federation, Wrapper):
        federation = federation.inner
    return federation
