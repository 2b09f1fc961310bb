"""Memory read bandwidth of this machine, measured as `edgegen bench` does (`edgegen/benchmark/bandwidth.py`).

python -m bench.bandwidth --threads 2
"""

import argparse

from edgegen.benchmark import bandwidth


def read_bandwidth(threads: int, megabytes: int = 140, seconds: float = 1.0) -> float:
    """Read bandwidth in GB/s: the best pass within ``seconds``."""
    return bandwidth.read_bandwidth(threads, megabytes, seconds) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the memory bandwidth of reading.")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--megabytes", type=int, default=140)
    args = parser.parse_args()
    print(f"{read_bandwidth(args.threads, args.megabytes):.1f} GB/s")


if __name__ == "__main__":
    main()
