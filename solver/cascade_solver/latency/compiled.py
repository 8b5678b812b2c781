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
    compile_kept: Any = numba.njit(cache=True)
    compile_once: Any = numba.njit
    try:
        machine: Callable[P, R] = compile_kept(function)
    except RuntimeError:
        machine = compile_once(function)
    return machine
