"""How kernels are compiled, cached and linked; the only place that uses private parts of Numba."""
