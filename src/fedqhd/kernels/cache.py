"""`jit`, the decorator of every kernel, and the cache on disk for what it compiles.

With `cache=True`, numba recompiles a function when the file that defines it changes, but not when a function that it
calls from another file does. Here the cache of every kernel depends on all source files of this package, so an edit to
any of them recompiles every kernel. The folder is the one that numba chooses: `NUMBA_CACHE_DIR` where it is set, else
`__pycache__` beside the source, else the user's cache folder.

The cache classes are internals of numba; `tests/test_kernel_cache.py` checks that they still do what is said here. What
a kernel calls must lie in this package, because nothing else is covered: a contract of import-linter holds that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.extending import is_jitted

# Sums may be reordered and fused, or they do not vectorise. NaN and infinity keep their meaning, because a diverging
# run is recognised by them.
FAST: Any = {"reassoc", "contract", "nsz", "arcp"}


def _package_stamp() -> bytes:
    """Hash of the names and contents of all source files of this package."""
    stamp = sha256()
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            source = file.read_bytes()
            stamp.update(f"{file.name} {len(source)}\n".encode() + source)
    return stamp.digest()


_PACKAGE_STAMP = _package_stamp()  # read once per process


class _PackageCacheImpl(CompileResultCacheImpl):
    """numba's way to find the cache of a function, with a stamp that also covers the package.

    numba's own stamp stays part of it, since a frozen executable has no source files.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (self.locator.get_source_stamp(), _PACKAGE_STAMP)
        self.locator.get_source_stamp = lambda: stamp


class _PackageCache(FunctionCache):
    _impl_class = _PackageCacheImpl


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a kernel and cache it under the stamp of the package.

    Arguments:
        function: the function to compile; without it, `jit(**options)` is the decorator.
        options: further options of `numba.njit`, such as `inline="always"`.

    Returns:
        The compiled function, or the function itself where `NUMBA_DISABLE_JIT` is set.
    """
    if function is None:
        return partial(jit, **options)
    compiled = njit(function, fastmath=FAST, nogil=True, **options)
    if is_jitted(compiled):
        compiled._cache = _PackageCache(function)  # type: ignore[attr-defined]
    return compiled
