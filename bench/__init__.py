"""Benchmarks, run by hand: comparisons with other runtimes (compare, gguf) and studies of single parts."""
