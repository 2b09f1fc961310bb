"""Expected use of a Raspberry Pi by bundles: memory by edgegen's forecast, tokens/s computed from a rate of reading.

    python -m bench.raspberry_pis BUNDLE … [--context 2048]

No Pi was at hand. A decode step reads every weight once, so it takes the bytes of the weights over the rate at
which the processor reads them. Rates are those at which llama.cpp decodes there, as others have measured:
edgegen decodes about as fast as llama.cpp on x86-64 (``python -m bench.compare``). Prompts are not computed.
"""

import argparse
import sys
from dataclasses import dataclass

from edgegen.benchmark.memory_forecast import forecast_memory
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.errors import EdgegenError
from edgegen.options.engine import EngineOptions


@dataclass(frozen=True)
class Pi:
    """``rate``: bytes per second at which weights are read."""

    name: str
    rate: float


PIS = (Pi("Raspberry Pi 5", 10e9), Pi("Raspberry Pi 4", 3.5e9))
"""Pi 5: 9.8 to 10.6 GB/s for five quantizations of one model (github.com/ggml-org/llama.cpp/issues/26484). Pi 4:
TinyLlama 1.1B in 8 bits, 1.17 GB, at 3 tokens/s (justine.lol/matmul)."""


def row(name: str, bundle: Bundle, context: int) -> str:
    """A row of the table: ``name``, bytes, forecast of the process, and tokens/s of each Pi."""
    options = EngineOptions()
    context = min(context, bundle.manifest.model.max_context)
    process = forecast_memory(bundle, options, context=context).total
    weights = bundle.manifest.files[bundle.variant_with(options.kv).weights].size
    speeds = " | ".join(f"{pi.rate / weights:.2g}" for pi in PIS)
    bits = bundle.manifest.quantization.linear.bits
    return f"| {name} | {bits} | {weights / 1e6:.0f} | {context:,} | {process / 1e6:.0f} | {speeds} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", help="names in the store, or paths")
    parser.add_argument("--context", type=int, default=2048, help="tokens (default: %(default)s)")
    arguments = parser.parse_args()
    speeds = " | ".join(f"{pi.name}, tokens/s (computed)" for pi in PIS)
    lines = [f"| bundle | bits | weights, MB | context | process, MB (forecast) | {speeds} |", "|---|" + "---:|" * 6]
    try:
        lines += [row(name, Bundle.open(BundleStore().resolve(name)), arguments.context) for name in arguments.bundles]
    except EdgegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
