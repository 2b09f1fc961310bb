"""Latency and throughput of `edgegen serve` next to llama.cpp's servers (`python -m bench.serve`)."""
