"""The one place that hands functions to numba."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles to machine code, kept on disk where numba finds a writable folder.

    ``NUMBA_CACHE_DIR`` chooses the folder. Without any writable one the code is compiled in each
    process: slower to start, never an error.
    """
    njit: Any = numba.njit
    try:
        machine: Callable[P, R] = njit(function, cache=True)
    except RuntimeError:  # numba found no folder to keep it in
        machine = njit(function)
    return machine
