"""One thread for linear algebra, so that bits do not depend on the number of cores."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def single_threaded() -> threadpool_limits:
    """Limit BLAS to one thread, for a `with` statement.

    The bits of a matrix product depend on the number of threads, and one thread is as fast at our sizes. Only libraries
    that are already loaded can be limited. scipy brings a BLAS of its own, which it loads when `scipy.linalg` is first
    used, so that it is loaded here.
    """
    import scipy.linalg  # noqa: F401

    return threadpool_limits(1)
