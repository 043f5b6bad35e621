"""Benchmarks against other libraries and baselines. Compare ratios within one run, not absolute times."""
