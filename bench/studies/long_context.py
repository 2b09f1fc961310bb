"""Long contexts: how fast attention alone reads its KV cache, beside the bandwidth of this machine in the same run.

    python -m bench.studies.long_context --threads 2

A graph of nothing but attention, over as many layers as the second cache does not hold. A token: microseconds of a
layer, GB/s of keys and values, and its share of the bandwidth. A chunk of a prompt that ends at the context:
microseconds of a token. Each is the best of all rounds, since a ceiling is looked for; the three are measured in turns.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bench.bandwidth import read_bandwidth
from edgegen.bundle.kv_format import KV_FORMATS, KVConversion, KVDtype
from edgegen.model.ort_session import Buffer, OneSession
from edgegen.system import fresh_memory

MICROSOFT = "com.microsoft"
BYTES, MOST_LAYERS = 140_000_000, 48
"""Of all layers' keys and values together, as the bandwidth is measured with; short contexts have fewer."""

SECONDS = 0.15
"""Of each measurement in a round."""

Clock = Callable[[], float]

KINDS = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int4": TensorProto.FLOAT}
"""Types of caches in the graph; int4 ones are made of float32."""


@dataclass(frozen=True)
class Shape:
    """A layer's query heads, its key and value heads, and numbers of each."""

    heads: int
    kv_heads: int
    size: int

    def bytes_of(self, context: int, cache: KVDtype) -> int:
        return 2 * self.kv_heads * context * self.row_bytes(cache)

    def row_bytes(self, cache: KVDtype) -> int:
        return KV_FORMATS[cache].row_width(self.size) * KV_FORMATS[cache].itemsize


SHAPES = {"S": Shape(9, 3, 64), "G": Shape(12, 12, 64), "Q": Shape(14, 2, 64)}
"""SmolLM2-135M's, GPT-2 small's and Qwen2.5-0.5B's."""


class Layers:
    """Attention of ``tokens`` that end at ``context``, in ``count`` layers."""

    def __init__(
        self, shape: Shape, cache: KVDtype, context: int, tokens: int, count: int, threads: int, clock: Clock
    ) -> None:
        self._clock = clock
        rng = np.random.default_rng(0)
        width = (shape.heads + 2 * shape.kv_heads) * shape.size
        arrays: dict[str, NDArray[Any]] = {
            "x": rng.standard_normal((1, tokens, width)).astype(np.float32),
            "length": np.array([context - 1], np.int32),
            "total": np.array(context, np.int32),
        }
        past = rng.standard_normal((1, shape.kv_heads, context, shape.size)).astype(np.float32)
        kept = past if cache == "float32" else (past * 40).clip(-127, 127).astype(np.int8)
        if cache == "int4":
            kept = rng.integers(0, 256, (*past.shape[:-1], shape.row_bytes(cache)), np.uint8)
            kept[..., -3], kept[..., -1] = 0x3E, 0xBE  # so that scales and middles are numbers
        for name in [f"{kind}{i}" for i in range(count) for kind in ("key", "value")]:
            # As an engine's KV cache lies, in small pages of its own.
            arrays[name] = np.frombuffer(fresh_memory(kept.nbytes), kept.dtype).reshape(kept.shape)
            arrays[name][...] = kept
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "attention.onnx"
            path.write_bytes(self._graph(shape, cache, count))
            session = OneSession(
                path, threads, conversion=KVConversion(KV_FORMATS["int4"], {}) if cache == "int4" else None
            )
        self._binding, buffers = session.binding("decode"), {name: Buffer(array) for name, array in arrays.items()}
        for name, buffer in buffers.items():
            self._binding.input(name, buffer)
        y = Buffer(np.zeros((1, tokens, shape.heads * shape.size), np.float32))
        for i in range(count):
            self._binding.output(f"y{i}", y)
            for name in ("key", "value"):
                self._binding.output(f"{name}{i}.present", buffers[f"{name}{i}"])

    @staticmethod
    def _graph(shape: Shape, cache: KVDtype, count: int) -> bytes:
        info, nodes, tensors = helper.make_tensor_value_info, list[Any](), list[Any]()
        inputs = [
            info("x", TensorProto.FLOAT, ["b", "t", None]),
            info("length", TensorProto.INT32, ["b"]),
            info("total", TensorProto.INT32, []),
        ]
        outputs, more, attributes = list[Any](), list[str](), dict[str, Any]()
        if cache == "int8":
            more = [*[""] * 5, "scales", "scales"]
            attributes |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
            scales = np.full((1, shape.kv_heads, 1, shape.size), 0.025, np.float32)
            tensors = [numpy_helper.from_array(scales, "scales")]
        for i in range(count):
            pasts = [f"key{i}", f"value{i}"]
            presents = [f"{name}.present" for name in pasts]
            inputs += [info(name, KINDS[cache], ["b", shape.kv_heads, "capacity", shape.size]) for name in pasts]
            outputs += [info(name, KINDS[cache], None) for name in presents]
            outputs.append(info(f"y{i}", TensorProto.FLOAT, None))
            nodes.append(
                helper.make_node(
                    "GroupQueryAttention",
                    ["x", "", "", *pasts, "length", "total", *more],
                    [f"y{i}", *presents],
                    domain=MICROSOFT,
                    num_heads=shape.heads,
                    kv_num_heads=shape.kv_heads,
                    scale=shape.size**-0.5,
                    **attributes,
                )
            )
        graph = helper.make_graph(nodes, "attention", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()

    def seconds(self) -> float:
        began = self._clock()
        self._binding.run()
        return self._clock() - began

    def best(self) -> float:
        """Seconds of the best run of those within ``SECONDS``, as the bandwidth is taken."""
        end, best = time.perf_counter() + SECONDS, float("inf")
        while best == float("inf") or time.perf_counter() < end:
            best = min(best, self.seconds())
        return best


def measure(shape: Shape, cache: KVDtype, context: int, *, threads: int, rounds: int, chunk: int, clock: Clock) -> str:
    """The cells of a row of the table."""
    each = shape.bytes_of(context, cache)
    count = max(1, min(MOST_LAYERS, BYTES // each))
    token = Layers(shape, cache, context, 1, count, threads, clock)
    prompt = Layers(shape, cache, context, min(chunk, context), 1, threads, clock)
    token.seconds()
    prompt.seconds()
    bandwidth, rate, took = 0.0, 0.0, float("inf")
    for _ in range(rounds):
        bandwidth = max(bandwidth, read_bandwidth(threads, seconds=SECONDS))
        rate = max(rate, count * each / token.best() / 1e9)
        took = min(took, prompt.best() / min(chunk, context))
    seconds = each / rate / 1e9
    return f"{1e6 * seconds:.0f} | {rate:.1f} | {100 * rate / bandwidth:.0f} | {1e6 * took:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--contexts", type=int, nargs="+", default=[1024, 8192, 32768])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--caches", nargs="+", choices=KINDS, default=["int8", "int4", "float32"])
    parser.add_argument("--isa", nargs="+", default=[""], help="kernels, by name; those of this processor by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a prompt's chunk")
    parser.add_argument(
        "--busy", action="store_true", help="time of the processor: with one thread, beside other programs"
    )
    args = parser.parse_args()
    clock = time.process_time if args.busy else time.perf_counter
    print("| shape, cache, context | kernels | a token, us | GB/s | % of the bandwidth | a prompt's token, us |")
    print("|---|---|---:|---:|---:|---:|")
    for isa in args.isa:
        os.environ["EDGEGEN_ISA"] = isa
        for cache in args.caches:
            for name in args.shapes:
                for context in args.contexts:
                    cells = measure(
                        SHAPES[name],
                        cache,
                        context,
                        threads=args.threads,
                        rounds=args.rounds,
                        chunk=args.chunk,
                        clock=clock,
                    )
                    print(f"| {name}, {cache}, {context} | {isa or 'best'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
