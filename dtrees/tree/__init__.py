"""The finished tree: flat arrays, and the kernels that predict with them."""
