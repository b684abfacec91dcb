"""The benchmarks, one file a subject; each registers what it measures."""
