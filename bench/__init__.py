"""Benchmarks: run them by hand (`python -m bench.compare`), they are never collected as tests."""
