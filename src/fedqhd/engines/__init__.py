"""Engines: where clients live, in this process or in others."""

from fedqhd.engines.local import LocalEngine
from fedqhd.engines.process import ProcessEngine, cores

__all__ = ["LocalEngine", "ProcessEngine", "cores"]
