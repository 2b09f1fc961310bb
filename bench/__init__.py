"""Benchmarks: run them by hand (`python -m bench.decode`), they are never collected as tests."""
