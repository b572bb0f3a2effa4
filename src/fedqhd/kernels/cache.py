"""`jit`, the decorator of every kernel, and the cache on disk of the compiled code.

With `cache=True`, numba recompiles a function when the file that defines it changes, but not when a function that it
calls from another file changes. Here the cache of every kernel depends on all source files of this package, so an edit
to any of them recompiles every kernel. The folder is the one that numba chooses: `NUMBA_CACHE_DIR` if it is set, else
`__pycache__` beside the source, else the user's cache folder.

The cache classes are internals of numba; `tests/test_kernel_cache.py` checks that they still work as described here. A
kernel may only call functions of this package, because the cache depends on no other files. A contract of
import-linter enforces this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.extending import is_jitted

log = logging.getLogger(__name__)

# Sums may be reordered and fused, since they would not vectorise otherwise. NaN and infinity keep their meaning, since
# they are how a diverging run is detected.
FAST: Any = {"reassoc", "contract", "nsz", "arcp"}


def _package_stamp() -> bytes:
    """Return a hash of the names and contents of all source files of this package."""
    stamp = sha256()
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            source = file.read_bytes()
            stamp.update(f"{file.name} {len(source)}\n".encode() + source)
    return stamp.digest()


_PACKAGE_STAMP = _package_stamp()  # read once per process


@cache
def _announce() -> None:
    """Say, once per process, that kernels are being compiled."""
    log.warning("compiling kernels for this machine, which takes about 15 seconds and happens only once")


class _PackageCache(FunctionCache):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # numba ignores the index of another version without reading on, since it may name types that no longer exist.
        self._cache_file._version = f"{self._cache_file._version} {_PACKAGE_STAMP.hex()}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            _announce()
        return found


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a kernel and cache it under the stamp of the package.

    Args:
        function: The function to compile; without it, `jit(**options)` returns a decorator.
        options: Further options of `numba.njit`, such as `inline="always"`.

    Returns:
        The compiled function, or the function itself if `NUMBA_DISABLE_JIT` is set.
    """
    if function is None:
        return partial(jit, **options)
    compiled = njit(function, **{"fastmath": FAST, "nogil": True, "_nrt": True, **options})
    if is_jitted(compiled):
        compiled._cache = _PackageCache(function)  # type: ignore[attr-defined]
    return compiled


UNCOUNTED: Any = {"_nrt": False}
"""Options of functions that do not count references to arrays, which would take longer than a step of an episode. They
cannot allocate or return arrays; the functions that they call can, since `jit` sets the option for each of its own."""

exact = partial(jit, fastmath=False, error_model="numpy", **UNCOUNTED)
"""Compile a kernel whose operations are done as they are written, with the bits that Python would give."""


class StepFunction:
    """The step of a compiled environment, which kernels call by its address; see `fedqhd.kernels.calls.STEP`.

    Args:
        function: The step. Its operations are done as they are written.
        cached: Whether the compiled code is kept on disk, under the stamp of this package.
    """

    def __init__(self, function: Callable[..., Any], cached: bool = False) -> None:
        self._function, self._cached = function, cached

    @cached_property
    def address(self) -> int:
        """The address of the compiled code. It is compiled when it is first used."""
        from fedqhd.kernels.calls import STEP

        compiled = CFunc(self._function, (STEP.args, STEP.return_type), {}, {"fastmath": False, "error_model": "numpy"})
        if self._cached:
            compiled._cache = _PackageCache(self._function)  # type: ignore[attr-defined]
        compiled.compile()
        self._compiled = compiled  # the code lives as long as this object
        return compiled.address or 0
