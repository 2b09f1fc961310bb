"""Operators of prefill: CPU time of each ONNX Runtime operator on one thread, in milliseconds.

    python -m bench.studies.operators

The first table multiplies a chunk by matrices of GPT-2 small with the available operators for 8-bit weights, and gives
their errors with some channels eight times as large. The second measures attention over a float32 and an int8 KV cache
for several chunk sizes of chunked prefill. CPU time is the minimum of several runs, which hides other load.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from edgegen.model.ort_session import Binding, Buffer, open_session
from edgegen_export.quantize.blockwise import packed, round_rows

Floats = NDArray[np.float32]
MICROSOFT = "com.microsoft"
TOKENS, REPEATS = 128, 15
MATRICES = {"qkv": (768, 2304), "up": (768, 3072), "down": (3072, 768)}
HEADS, HEAD_DIM, CAPACITY, PROMPT = 12, 64, 1024, 512


def round_per_row(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes int8 [columns, rows] and scales float32 [rows] of a matrix [rows, columns], in whole steps up to 127."""
    scales = np.maximum(np.abs(matrix).max(axis=1), np.finfo(np.float32).tiny) / np.float32(127)
    return np.rint(matrix.T / scales).astype(np.int8), scales


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| columns, rows | way | ms | relative error |\n|---|---|---:|---:|")
    for columns, rows in MATRICES.values():
        for row in products(columns, rows):
            print(row)
    print(f"\n| a prompt of {PROMPT} in chunks of | float32, ms | int8, ms |\n|---|---:|---:|")
    for chunk in (512, 256, 128, 64, 32, 16):
        print(f"| {chunk} | {attention('float32', chunk):.1f} | {attention('int8', chunk):.1f} |", flush=True)


def products(columns: int, rows: int) -> list[str]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((rows, columns)).astype(np.float32)
    x = rng.standard_normal((1, TOKENS, columns)).astype(np.float32)
    x[..., ::97] *= 8
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    found = list[str]()
    for name, model in {
        "blocks of 64 (MatMulNBits)": in_blocks(weight),
        "per row, a scale for each position": per_row(weight),
        "per row, a scale for the chunk (DynamicQuantizeMatMul)": dynamic(weight),
    }.items():
        session = opened(model)
        (y,) = session.run(None, {"x": x})
        error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
        seconds = least(lambda session=session: session.run(None, {"x": x}))
        found.append(f"| {columns}, {rows} | {name} | {1e3 * seconds:.2f} | {error:.4f} |")
    return found


def in_blocks(weight: Floats) -> ModelProto:
    rounded = round_rows(weight, 8, 64)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "codes", "scales"],
        ["y"],
        domain=MICROSOFT,
        K=weight.shape[1],
        N=weight.shape[0],
        bits=8,
        block_size=64,
        accuracy_level=4,
    )
    arrays = {"codes": packed(rounded.codes, 8), "scales": rounded.scales.astype(np.float32)}
    return product_model([node], arrays)


def per_row(weight: Floats) -> ModelProto:
    """As `blocks.py` writes it."""
    codes, scales = round_per_row(weight)
    nodes = [
        helper.make_node("Abs", ["x"], ["sizes"]),
        helper.make_node("ReduceMax", ["sizes", "last"], ["largest"], keepdims=1),
        helper.make_node("Div", ["x", "largest"], ["shares"]),
        helper.make_node("QuantizeLinear", ["shares", "step", "middle"], ["rounded"]),
        helper.make_node(
            "MatMulIntegerToFloat", ["rounded", "codes", "step", "scales", "middle"], ["product"], domain=MICROSOFT
        ),
        helper.make_node("Mul", ["product", "largest"], ["y"]),
    ]
    constants = {"last": np.array([-1]), "step": np.float32(1 / 127), "middle": np.uint8(128)}
    return product_model(nodes, {"codes": codes, "scales": scales, **constants})


def dynamic(weight: Floats) -> ModelProto:
    codes, scales = round_per_row(weight)
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "codes", "scales", "zeros"], ["y"], domain=MICROSOFT)
    return product_model([node], {"codes": codes, "scales": scales, "zeros": np.zeros(len(scales), np.int8)})


def product_model(nodes: Sequence[NodeProto], arrays: Mapping[str, Any]) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "t", "k"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "t", "n"])
    return model_of(nodes, [x], [y], arrays)


def attention(dtype: str, chunk: int) -> float:
    """Milliseconds for a layer of GPT-2 small to attend over a whole prompt."""
    session = opened(attention_model(dtype))
    kv = np.zeros((1, HEADS, CAPACITY, HEAD_DIM), dtype)
    x = np.random.default_rng(0).standard_normal((1, chunk, 3 * HEADS * HEAD_DIM)).astype(np.float32)
    values = {
        "x": x,
        "key": kv,
        "value": kv.copy(),
        "seqlens": np.zeros(1, np.int32),
        "total": np.zeros((), np.int32),
        "y": np.zeros((1, chunk, HEADS * HEAD_DIM), np.float32),
    }
    binding, buffers = Binding(session), {name: Buffer(array) for name, array in values.items()}
    for name in ("x", "key", "value", "seqlens", "total"):
        binding.input(name, buffers[name])
    for name, source in (("y", "y"), ("key.present", "key"), ("value.present", "value")):
        binding.output(name, buffers[source])

    def run() -> None:
        for end in range(chunk, PROMPT + 1, chunk):
            values["seqlens"][0], values["total"][...] = end - 1, end
            binding.run()

    return 1e3 * least(run)


def attention_model(dtype: str) -> ModelProto:
    kind = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8}[dtype]
    inputs, attributes = ["x", "", "", "key", "value", "seqlens", "total"], dict[str, Any]()
    arrays = dict[str, Any]()
    if dtype == "int8":
        inputs += ["", "", "", "", "", "key.scale", "value.scale"]
        attributes |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        arrays = {name: np.full((1, HEADS, 1, HEAD_DIM), 0.03, np.float32) for name in inputs[-2:]}
    node = helper.make_node(
        "GroupQueryAttention",
        inputs,
        ["y", "key.present", "value.present"],
        domain=MICROSOFT,
        num_heads=HEADS,
        kv_num_heads=HEADS,
        scale=HEAD_DIM**-0.5,
        **attributes,
    )
    shape = ["b", HEADS, "capacity", HEAD_DIM]
    info = helper.make_tensor_value_info
    given = [
        info("x", TensorProto.FLOAT, ["b", "t", 3 * HEADS * HEAD_DIM]),
        *(info(name, kind, shape) for name in ("key", "value")),
        info("seqlens", TensorProto.INT32, ["b"]),
        info("total", TensorProto.INT32, []),
    ]
    made = [
        info("y", TensorProto.FLOAT, ["b", "t", HEADS * HEAD_DIM]),
        *(info(f"{name}.present", kind, shape) for name in ("key", "value")),
    ]
    return model_of([node], given, made, arrays)


def model_of(
    nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], arrays: Mapping[str, Any]
) -> ModelProto:
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(list(nodes), "operator", list(inputs), list(outputs), stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def opened(model: ModelProto) -> Any:
    return open_session(model.SerializeToString(), threads=1)


def least(run: Callable[[], object]) -> float:
    """Seconds of CPU time."""
    run()
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


if __name__ == "__main__":
    main()
