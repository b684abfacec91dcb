"""The benchmarks, one file for each subject; each function registers itself."""
