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
kernel = partial(njit, _nrt=True, nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)()


@kernel
def ZERO():
    """Return 0. Numba compiles a kernel anew for each literal it is called with; this is none."""
    return np.int64(0)


@kernel
def NONE():
    """Return -1, likewise."""
    return np.int64(-1)


#: Compile a part of kernels that is never called from Python: without the code for that, it compiles faster.
inner_kernel = partial(njit, _nrt=True, nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)()

#: Compile a part of kernels that runs for each small node: it does not count references to arrays, which costs time, most of all where
#: threads share arrays. Such a part must not allocate an array nor return one. (A part called by it would do without counting as well, but
#: for the explicit ``_nrt=True`` above.)
lean_kernel = partial(njit, _nrt=False, nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)()

#: The same, made part of its caller: for what takes so many arrays that to pass them costs as much as the work on a node of few rows.
inlined_kernel = partial(
    njit, _nrt=False, nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True
)()

#: A long part of one kernel, which stands apart to be read: it is merged into its only caller, rather than compiled by itself and then once
#: more as part of it.
merged_kernel = partial(njit, _nrt=False, nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, inline="always")()

#: The same as a lean kernel for what is called from Python.
lean_entry = partial(njit, _nrt=False, nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)()
