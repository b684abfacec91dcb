"""How kernels are compiled.

Without the interpreter lock, so that threads run side by side; cached on disk; never ``parallel=True`` (its threads abort under Dask's) and
never ``fastmath`` (it reorders what decides a split). Divisions by zero give infinities and NaN, as in NumPy, rather than checks at
every division.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit

#: Compile a kernel.
kernel = partial(njit, nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)()


@kernel
def ZERO():
    """Return 0. Numba compiles a kernel anew for each literal it is called with; this is none."""
    return np.int64(0)


@kernel
def NONE():
    """Return -1, likewise."""
    return np.int64(-1)


#: Compile a part of kernels that is never called from Python: without the code for that, it compiles faster.
inner_kernel = partial(njit, nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)()
