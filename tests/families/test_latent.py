"""Latent attention: what the KV cache has of it, in memory and in what is said of it, and what is refused."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgegen.bundle.bundle import Bundle
from edgegen.cli.info import describe
from edgegen.errors import DeviceError, UnsupportedModelError
from edgegen.model.device import Device
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.loading import open_on_device, open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.families.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from edgegen_export.families.minicpm import MINICPM3
from edgegen_export.families.mistral4 import MISTRAL4
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, prefilled
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of, tokens

CASE = next(case for case in CASES if str(case) == "deepseek_v3: base")
YARN = {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0}


def attention_of(config: DecoderConfig) -> LatentAttention:
    assert isinstance(config.attention, LatentAttention)
    return config.attention


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Of DeepSeek's head sizes; calibrated."""
    folder = tmp_path_factory.mktemp("latent")
    sizes = {
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_experts_per_tok": 2,
    }
    case = type(CASE)(CASE.family, "wide", {**CASE.config, **sizes, "num_hidden_layers": 2}, oracles=CASE.oracles)
    return export(str(checkpoint_of(case, folder / "checkpoint")), folder / "bundle")[0]


def initializers(bundle: Bundle) -> dict[str, np.ndarray]:
    """Return the initializers of the decode graph, by name."""
    graph = cast(Any, onnx).load(str(bundle.file(bundle.variant.decode))).graph
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def test_matrices_of_heads_have_8_bits_where_a_layer_has_many(tmp_path: Path) -> None:
    """Here 262,144 weights and 393,216: the first stay floats."""
    case = next(case for case in CASES if str(case) == "minicpm3: base")
    sizes = {
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 128,
        "v_head_dim": 192,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    }
    wide = type(case)(case.family, "wide", {**case.config, **sizes, "num_hidden_layers": 1}, oracles=case.oracles)
    source = str(checkpoint_of(wide, tmp_path / "checkpoint"))
    exact = initializers(export(source, tmp_path / "fp32", ExportOptions(scheme="fp32"))[0])
    for scheme in ("int8", "int4"):
        stored = initializers(export(source, tmp_path / scheme, ExportOptions(scheme=scheme, fast=True))[0])
        assert stored["layers.0.attn.k_b.weight"].dtype == np.float32
        scales = stored["layers.0.attn.v_b.weight.scales"].astype(np.float32)
        found = (stored["layers.0.attn.v_b.weight"].astype(np.float32) - 128) * scales
        expected = exact["layers.0.attn.v_b.weight"].reshape(found.shape)
        assert (np.abs(found - expected) <= 0.51 * scales).all()


def test_a_token_takes_the_latent_and_what_is_rotated_and_no_more(wide: Bundle) -> None:
    by_name = {variant.kv.dtype: variant.kv for variant in wide.manifest.variants}
    assert {dtype: kv.bytes_per_token for dtype, kv in by_name.items()} == {"float32": 2 * 576 * 4, "int8": 2 * 576}
    assert describe(wide)["memory"]["kv_bytes_per_token"] == wide.variant.kv.bytes_per_token


@pytest.mark.parametrize("kv", ["float32", "int8", "int4"])
def test_the_cache_is_as_large_as_is_said(wide: Bundle, kv: Any) -> None:
    runner = open_runner(wide, EngineOptions(kv=kv, threads=1))
    assert isinstance(runner, InPlaceRunner)
    cache = runner.new_cache()
    cache.reserve(1, 64)
    assert cache.nbytes == 64 * wide.variant_with(kv).kv.bytes_per_token


@pytest.mark.parametrize(("kv", "kernels"), [("int8", "auto"), ("int8", "stock"), ("int4", "auto")])
def test_a_rounded_cache_of_wide_latents_is_bit_exact(wide: Bundle, kv: Any, kernels: Any) -> None:
    ids = tokens(CASE, 40, seed=1)
    runner = open_runner(wide, EngineOptions(kv=kv, threads=1, kernels=kernels))
    whole = decoded(runner, runner.new_cache(), ids)
    for chunk in (1, 7, 16):
        found = prefilled(runner, runner.new_cache(), ids, chunk)
        np.testing.assert_array_equal(found, whole[[min(at + chunk, 40) - 1 for at in range(0, 40, chunk)]])


def test_a_device_does_not_take_heads_as_wide(wide: Bundle) -> None:
    with pytest.raises(DeviceError, match="it has heads of size 576"):
        open_on_device(wide, EngineOptions(threads=1), Device("cpu", "CPUExecutionProvider"))


@pytest.mark.parametrize(
    ("family", "size"),
    [(MINICPM3, 288), (DEEPSEEK_V3, 576), (MISTRAL4, 320)],
    ids=lambda it: getattr(it, "classes", it),
)
def test_what_published_models_keep_of_a_token(family: Any, size: int) -> None:
    config = family.read_config({"model_type": family.model_types[0]})
    assert {layer.head_dim for layer in kv_spec(config).layers} == {size}
    assert kv_spec(config).bytes_per_token == config.num_layers * size * 4


def test_scores_are_scaled_as_those_of_whole_heads_and_sharpened_by_yarn() -> None:
    plain = attention_of(DEEPSEEK_V3.read_config({}))
    assert plain.scale == 192**-0.5
    stretched = attention_of(DEEPSEEK_V3.read_config({"rope_scaling": {**YARN, "mscale_all_dim": 1.0}}))
    assert stretched.scale == pytest.approx(192**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert stretched.rope
    assert stretched.rope.attention_factor == 1.0


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        (DEEPSEEK_V3, {"kv_lora_rank": 33}, r"kv_lora_rank \+ qk_rope_head_dim = 97: latents of this size are not"),
        (DEEPSEEK_V3, {"qk_rope_head_dim": 7}, r"qk_rope_head_dim = 7: channels are rotated in pairs"),
        (DEEPSEEK_V3, {"scoring_func": "softmax"}, r"scoring_func = 'softmax': experts are weighed by sigmoids only"),
        (DEEPSEEK_V3, {"topk_method": "greedy"}, r"topk_method = 'greedy': experts are chosen with a bias of each"),
        (DEEPSEEK_V3, {"moe_layer_freq": 2}, r"moe_layer_freq = 2: all layers behind the dense ones have experts"),
        (DEEPSEEK_V3, {"partial_rotary_factor": 0.5}, r"partial_rotary_factor = 0.5: this family rotates whole heads"),
        (DEEPSEEK_V2, {"scoring_func": "sigmoid"}, r"scoring_func = 'sigmoid': experts are weighed by a softmax only"),
        (DEEPSEEK_V2, {"topk_method": "noaux_tc"}, r"topk_method: 'noaux_tc' is not supported"),
        (
            MISTRAL4,
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}},
            r"partial_rotary_factor: it rotates 32 channels, and qk_rope_head_dim is 64",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(family: Any, changes: dict[str, Any], said: str) -> None:
    sizes = {"num_experts_per_tok": 4, "moe_intermediate_size": 64}
    with pytest.raises(UnsupportedModelError, match=said):
        family.read_config({**sizes, **changes})
