"""Ternary models: packed checkpoints of BitNet and of other families, every scheme, and what is refused."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from edgegen.benchmark.memory_forecast import table_bytes
from edgegen.cli.info import describe
from edgegen.errors import EdgegenError
from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.checkpoint.lora.adapter import Adapter
from edgegen_export.families.bitnet import BITNET
from edgegen_export.kept_adapter import export_adapter
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import estimate
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, export_to, runner_of
from tests.families.cases import CASES
from tests.families.harness import assert_computes, checkpoint_of
from tests.families.test_published_configs import CHECKPOINTS
from tests.oracle import edit_json, import_torch, import_transformers, write_random
from tests.second_oracle import open_oracle

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("divergence")]

CASE = next(case for case in CASES if str(case) == "bitnet: base")
SIZES = next(case.config for case in CASES if str(case) == "bitnet: not ternary")
SEEDS = {"bitnet": 1, "llama": 0}
"""Of random weights without near ties."""

Arrays = dict[str, NDArray[Any]]


def read(folder: Path) -> Arrays:
    return cast(Any, safetensors.numpy).load_file(folder / "model.safetensors")


def write(folder: Path, arrays: Arrays) -> None:
    cast(Any, safetensors.numpy).save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def packed(folder: Path, family: str, linear_class: str) -> Path:
    """A random checkpoint whose layers' matrices are rounded and packed by transformers' own functions."""
    torch, _ = import_torch(), import_transformers()
    bitnet: Any = import_module("transformers.integrations.bitnet")
    write_random(folder, family, SIZES, seed=SEEDS[family])
    arrays: Arrays = {}
    for name, array in read(folder).items():
        arrays[name] = array
        if name.endswith("proj.weight"):
            values = bitnet.WeightQuant.apply(torch.from_numpy(array))
            scale = values.abs().max()
            arrays[name] = bitnet.pack_weights(torch.sign(values)).numpy()
            arrays[f"{name}_scale"] = (scale if linear_class == "autobitlinear" else 1 / scale).reshape(1).numpy()
    write(folder, arrays)
    settings = {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": "offline"}
    edit_json(folder / "config.json", quantization_config=settings)
    return folder


@pytest.mark.parametrize("family", ["bitnet", "llama"])
@pytest.mark.parametrize(("linear_class", "oracle"), [("autobitlinear", 5), ("bitlinear", 4)])
def test_packed_matrices(family: str, linear_class: str, oracle: int, tmp_path: Path) -> None:
    checkpoint = packed(tmp_path / "checkpoint", family, linear_class)
    bundle = export_to(checkpoint, tmp_path / "bundle")
    judge = open_oracle(checkpoint, oracle)
    ids = np.random.default_rng(3).integers(0, 96, 40).tolist()
    assert_computes(runner_of(bundle), lambda ids: judge.logits(np.array([ids]))[0], ids)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of(CASE, tmp_path_factory.mktemp("ternary") / "checkpoint")


@pytest.mark.parametrize("scheme", ["int8", "int4", "fp16", "fp32"])
def test_layers_are_ternary_with_every_scheme(scheme: Scheme, checkpoint: Path, tmp_path: Path) -> None:
    bundle, report = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme=scheme))
    quantization = bundle.manifest.quantization
    assert quantization.linear.is_ternary
    assert quantization.embedding.bits == {"int8": 8, "int4": 8, "fp16": 16, "fp32": 32}[scheme]
    assert describe(bundle)["quantization"] == f"{scheme}, ternary layers in 2 bits"
    assert bundle.variant.kv.dtype == ("int8" if scheme in ("int8", "int4") else "float32")
    assert report.preferred.mean_kl < 0.2
    assert table_bytes(bundle, bundle.variant) < 96 * 64 * 4 + 4096
    codes = sum(array.size for name, array in read(checkpoint).items() if name.endswith("proj.weight")) // 4
    others = (
        8 * 96 * 64 * quantization.embedding.bits // 32
    )  # embedding and head, four times as many bytes as they take
    assert bundle.size_of(bundle.variant.weights) < codes + others + 200_000


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_estimates_count_two_bits(scheme: Scheme) -> None:
    """Of the published model, with an embedding of 328 million weights, and 2,084 million in its layers."""
    config = BITNET.read_config(CHECKPOINTS["microsoft/bitnet-b1.58-2B-4T"]["config"])
    bytes_of_weights = 328e6 * 8.25 / 8 + 2084e6 * 2 / 8
    assert estimate(config, scheme, fast=False, gflops=100).bundle == pytest.approx(bytes_of_weights, rel=0.03)


def test_output_is_that_of_stock_operators(checkpoint: Path, tmp_path: Path) -> None:
    bundle = export_to(checkpoint, tmp_path / "bundle", "int8")
    for graph in (bundle.variant.prefill, bundle.variant.decode):
        ours = with_kernels(bundle.file(graph).read_bytes())
        assert inexact_operators(ours) == frozenset()
        assert b"values of bytes" not in ours
    ids = np.random.default_rng(1).integers(0, 96, 60).tolist()
    runners = [open_runner(bundle, EngineOptions(kernels=kernels)) for kernels in ("auto", "stock")]
    ours, stock = (decoded(runner, runner.new_cache(), ids) for runner in runners)
    # Nearly all the same: near a tie the last bit of a sum decides how an activation is rounded.
    assert (ours.argmax(-1) == stock.argmax(-1)).mean() >= 0.9
    assert np.abs(ours - stock).mean() < 0.1


Change = Callable[[Arrays], None]


def without_scale(arrays: Arrays) -> None:
    del arrays["model.layers.1.mlp.up_proj.weight_scale"]


def with_scale(value: float) -> Change:
    def change(arrays: Arrays) -> None:
        arrays["model.layers.1.mlp.up_proj.weight_scale"][0] = value

    return change


def in_floats(arrays: Arrays) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    arrays[name] = arrays[name].astype(np.float32)


def of_four_values(arrays: Arrays) -> None:
    arrays["model.layers.0.self_attn.o_proj.weight"][0, :2] = 0b11_00_00_10, 0b00_00_00_11


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_scale, "layers.1.mlp.up_proj.weight: has no weight_scale of one number"),
        (with_scale(0), "layers.1.mlp.up_proj.weight: its weight_scale is 0"),
        (with_scale(np.nan), "layers.1.mlp.up_proj.weight: its weight_scale is nan"),
        (in_floats, "q_proj.weight: stored as float32, and uint8 expected, four values in a byte"),
        (of_four_values, "o_proj.weight: ternary by config.json, and a row has values of several sizes"),
    ],
)
def test_matrices_that_are_not_ternary_are_refused(change: Change, message: str, tmp_path: Path) -> None:
    checkpoint = packed(tmp_path / "checkpoint", "bitnet", "autobitlinear")
    arrays = {name: array.copy() for name, array in read(checkpoint).items()}
    change(arrays)
    write(checkpoint, arrays)
    with pytest.raises(EdgegenError, match=message):
        export_to(checkpoint, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


ONLINE: Mapping[str, Any] = CASE.config["quantization_config"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization_config": {**ONLINE, "use_rms_norm": True}}, "use_rms_norm = True: norms before each matrix"),
        ({"quantization_config": {**ONLINE, "linear_class": "other"}}, "linear_class = 'other'"),
        ({"quantization_config": {**ONLINE, "quantization_mode": "never"}}, "quantization_mode = 'never'"),
        ({"quantization_config": {**ONLINE, "modules_to_not_convert": ["q_proj"]}}, "modules_to_not_convert"),
        ({"quantization_config": {**ONLINE, "group_size": 64}}, "group_size = 64: not understood"),
        ({"head_dim": 32}, "head_dim: 4 heads of 32 are normalized together, and hidden_size is 64"),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], message: str, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    edit_json(folder / "config.json", **config)
    with pytest.raises(EdgegenError, match=message):
        export_to(folder, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("family", "what"), [("mixtral", "attention and MLPs alone"), ("opt", "no table of positions")]
)
def test_other_models_are_not_ternary(family: str, what: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if (case.family, case.name) == (family, "base"))
    folder = checkpoint_of(case, tmp_path / "checkpoint")
    edit_json(folder / "config.json", quantization_config=ONLINE)
    with pytest.raises(EdgegenError, match=f"ternary matrices are read in models of {what}"):
        export_to(folder, tmp_path / "bundle")


def test_options_that_ternary_models_have_no_use_for_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words")
    with pytest.raises(EdgegenError, match="stored as they are: leave calibration and bits_budget out"):
        export(str(checkpoint), tmp_path / "bundle", ExportOptions(calibration=text))
    with pytest.raises(EdgegenError, match="stored as they are: leave calibration and bits_budget out"):
        export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="int4", bits_budget=6.0))


def test_adapters_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    factors = {
        f"base_model.model.model.layers.0.mlp.up_proj.lora_{part}.weight": np.ones(shape, np.float32)
        for part, shape in {"A": (2, 64), "B": (96, 2)}.items()
    }
    cast(Any, safetensors.numpy).save_file(factors, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["up_proj"]}'
    )
    assert Adapter.open(str(adapter))
    with pytest.raises(EdgegenError, match="an adapter cannot be merged into ternary matrices"):
        export(str(checkpoint), tmp_path / "bundle", ExportOptions(adapter=str(adapter)))
    bundle = export_to(checkpoint, tmp_path / "bundle")
    with pytest.raises(EdgegenError, match="has ternary matrices, which no adapter is for"):
        export_adapter(str(checkpoint), bundle, tmp_path / "kept", str(adapter))
