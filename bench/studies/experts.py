"""Mixture of experts: edgegen's kernel, ONNX Runtime's QMoE, and the same matrices one by one: time and bytes read.

    python -m bench.studies.experts --threads 2

One by one are as many experts as a token is routed to (decode), or an even share of the tokens per expert (prefill):
the difference is the cost of routing. All run on kernels and on ONNX Runtime's operators, in turns. Weights and routes
are random; scales count as read. By default a token reads a quarter of a gigabyte, more than a CPU cache holds.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from edgegen.model.ort_session import open_session

BLOCK = 64


@dataclass(frozen=True)
class Shape:
    """The sizes of a layer of experts."""

    width: int
    expert_width: int
    experts: int
    per_token: int
    layers: int

    def megabytes(self, experts: int) -> float:
        """Megabytes of codes and scales of ``experts`` experts in every layer."""
        return 3 * self.width * self.expert_width * experts * self.layers * (1 + 4 / BLOCK) / 1e6


def weights(name: str, experts: int, rows: int, columns: int, rng: np.random.Generator) -> list[TensorProto]:
    codes = rng.integers(0, 256, (experts, rows, columns), dtype=np.uint8)
    scales = np.full((experts, rows, columns // BLOCK), 1e-3, np.float32)
    return [numpy_helper.from_array(codes, f"{name}.codes"), numpy_helper.from_array(scales, f"{name}.scales")]


def qmoe(shape: Shape, rng: np.random.Generator) -> ModelProto:
    """x [t, width], scores [t, experts] → [t, width], through all layers one after the other."""
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    for i in range(shape.layers):
        tensors += weights(f"{i}.up", shape.experts, 2 * shape.expert_width, shape.width, rng)
        tensors += weights(f"{i}.down", shape.experts, shape.width, shape.expert_width, rng)
        up, down = ([f"{i}.{name}.codes", f"{i}.{name}.scales"] for name in ("up", "down"))
        node = helper.make_node(
            "QMoE",
            [f"x{i}", "scores", *up, "", *down, ""],
            [f"x{i + 1}"],
            domain="com.microsoft",
            k=shape.per_token,
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.0,
            activation_beta=0.0,
            swiglu_limit=1e30,
            normalize_routing_weights=1,
            expert_weight_bits=8,
            block_size=BLOCK,
        )
        nodes.append(node)
    return model(nodes, ["x0", "scores"], f"x{shape.layers}", tensors)


def matmuls(shape: Shape, experts: int, rng: np.random.Generator) -> ModelProto:
    """x [t, width] → [t, width]: in every layer the sum of ``experts`` gated MLPs of one expert's size."""
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    for i in range(shape.layers):
        for expert in range(experts):
            name = f"{i}.{expert}"
            tensors += matrix(f"{name}.up", 2 * shape.expert_width, shape.width, rng)
            tensors += matrix(f"{name}.down", shape.width, shape.expert_width, rng)
            nodes += [
                product(f"x{i}", f"{name}.up", 2 * shape.expert_width, shape.width),
                helper.make_node("Split", [f"{name}.up"], [f"{name}.g", f"{name}.u"], axis=1, num_outputs=2),
                helper.make_node("QuickGelu", [f"{name}.g"], [f"{name}.s"], domain="com.microsoft", alpha=1.0),
                helper.make_node("Mul", [f"{name}.s", f"{name}.u"], [f"{name}.h"]),
                product(f"{name}.h", f"{name}.down", shape.width, shape.expert_width),
            ]
        nodes.append(helper.make_node("Sum", [f"{i}.{expert}.down" for expert in range(experts)], [f"x{i + 1}"]))
    return model(nodes, ["x0"], f"x{shape.layers}", tensors)


def matrix(name: str, rows: int, columns: int, rng: np.random.Generator) -> list[TensorProto]:
    codes, scales = weights(name, 1, rows, columns, rng)
    codes.dims[:] = [rows, columns // BLOCK, BLOCK]
    scales.dims[:] = [rows, columns // BLOCK]
    return [codes, scales]


def product(x: str, name: str, rows: int, columns: int) -> NodeProto:
    return helper.make_node(
        "MatMulNBits",
        [x, f"{name}.codes", f"{name}.scales"],
        [name],
        domain="com.microsoft",
        K=columns,
        N=rows,
        bits=8,
        block_size=BLOCK,
        accuracy_level=4,
    )


def model(nodes: list[NodeProto], inputs: Sequence[str], output: str, tensors: list[TensorProto]) -> ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["t", None]) for name in [*inputs, output]]
    graph = helper.make_graph(nodes, "experts", values[:-1], values[-1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def milliseconds(graph: Path, threads: int, feeds: Sequence[dict[str, NDArray[np.float32]]]) -> dict[str, float]:
    """The fastest run by kernels and by stock operators, since other load on the machine only adds time."""
    sessions = {name: open_session(graph, threads, kernels=name == "kernels") for name in ("kernels", "stock")}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for feed in feeds:
        for name, session in sessions.items():
            start = time.perf_counter()
            session.run(None, feed)
            times[name].append(time.perf_counter() - start)
    return {name: min(found) * 1e3 for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure mixtures of experts.")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--expert-width", type=int, default=768)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--per-token", type=int, default=4)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--prefill", type=int, default=128, help="tokens")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    shape = Shape(args.width, args.expert_width, args.experts, args.per_token, args.layers)
    rng = np.random.default_rng(0)

    def inputs(tokens: int, *names: str) -> list[dict[str, NDArray[np.float32]]]:
        widths = {"x0": shape.width, "scores": shape.experts}
        return [
            {name: rng.standard_normal((tokens, widths[name]), np.float32) for name in names}
            for _ in range(args.repeats)
        ]

    def lines(what: str, graph: ModelProto, feeds: list[dict[str, NDArray[np.float32]]], megabytes: float) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "experts.onnx"
            path.write_bytes(graph.SerializeToString())
            for how, ms in milliseconds(path, args.threads, feeds).items():
                print(f"{what:28} {how:8} {ms:9.2f} ms {megabytes / ms:7.1f} GB/s", flush=True)

    share = max(1, args.prefill * shape.per_token // shape.experts)
    few, all_of_them = shape.megabytes(shape.per_token), shape.megabytes(shape.experts)
    experts = qmoe(shape, rng)
    lines("decode, experts", experts, inputs(1, "x0", "scores"), few)
    lines(f"prefill of {args.prefill}, experts", experts, inputs(args.prefill, "x0", "scores"), all_of_them)
    del experts
    lines("decode, one by one", matmuls(shape, shape.per_token, rng), inputs(1, "x0"), few)
    one_by_one = matmuls(shape, shape.experts, rng)
    lines(f"prefill of {args.prefill}, one by one", one_by_one, inputs(share, "x0"), all_of_them)


if __name__ == "__main__":
    main()
