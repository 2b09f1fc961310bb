"""Rounds with figures that one can compute in one's head."""

from dataclasses import replace

from edgegen.benchmark import Batch, Benchmark, Decode, Prefill, Round

ROUND = Round(
    onnxruntime="1.31.1",
    load_seconds=0.2,
    first_token_seconds=0.8,
    memory_bytes=150_000_000,
    peak_bytes=400_000_000,
    kv_bytes=2_000_000,
    spin_seconds=0.04,
    idle_cpu=0.0,
    bandwidth=50e9,
    prefill=(Prefill(32, 0.016), Prefill(128, 0.032)),
    decode=(
        Decode(32, 132_000_000, (0.004, 0.009, 0.003), (0.0039, 0.0088, 0.0029)),
        Decode(256, 356_000_000, (0.005,), (0.0046,)),
    ),
    batch=(Batch(1, 32, (0.004,)), Batch(4, 32, (0.008, 0.0081, 0.007))),
)
SLOWER = replace(
    ROUND,
    first_token_seconds=1.0,
    bandwidth=25e9,
    prefill=(Prefill(32, 0.032), Prefill(128, 0.064)),
    decode=(Decode(32, 132_000_000, (0.008,), (0.0075,)), Decode(256, 356_000_000, (0.01,), (0.0098,))),
)
BENCHMARK = Benchmark(
    model="mine",
    threads=2,
    kv="float32",
    weights_bytes=100_000_000,
    kv_bytes_per_token=1_000_000,
    left_out=("a prompt of 512 and a token",),
    rounds=(ROUND, SLOWER, ROUND),
)
