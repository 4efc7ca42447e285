"""Benchmark systems and baselines: what the library is measured on and against."""
