"""Where clients live."""

from fedqhd.engines.local import LocalEngine

__all__ = ["LocalEngine"]
