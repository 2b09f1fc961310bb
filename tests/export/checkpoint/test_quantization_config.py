"""Settings of quantization in configs: read, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.bitsandbytes import BitsAndBytes
from edgegen_export.checkpoint.packing import Packing
from edgegen_export.checkpoint.quantization_config import read_quantization, with_modelopt_settings
from edgegen_export.checkpoint.stored_format import CHANNEL, TENSOR, Formats, StoredFormat
from tests.export.checkpoint.scaled_checkpoints import compressed

NAMES = BaseNames("embed_tokens", "lm_head", prefixes=("", "model."))
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}


def formats(settings: dict[str, Any], key: str = "quantization_config") -> Formats:
    found = read_quantization({key: settings})
    assert isinstance(found, Formats), found
    return found


def problems(settings: object, key: str = "quantization_config") -> list[str]:
    found = read_quantization({key: settings})
    assert isinstance(found, list), found
    return [problem.removeprefix(f"{key}.") for problem in found]


def test_configs_without_any_and_those_of_packed_checkpoints() -> None:
    assert read_quantization({}) is None
    assert isinstance(read_quantization({"quantization_config": {"quant_method": "mxfp4"}}), Packing)
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    assert read_quantization({"quantization_config": settings}) == BitsAndBytes()


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [
        # Qwen3, Ministral 3 and AutoFP8, as their config.json has it.
        ({"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}, ((128, 128),)),
        (
            {
                "activation_scheme": "static",
                "dequantize": False,
                "modules_to_not_convert": ["model.vision_tower", "lm_head"],
                "weight_block_size": None,
            },
            (TENSOR, CHANNEL),
        ),
        (
            {"activation_scheme": "static", "ignored_layers": ["lm_head"], "kv_cache_scheme": "static"},
            (TENSOR, CHANNEL),
        ),
    ],
)
def test_fp8_of_transformers(settings: dict[str, Any], blocks: Any) -> None:
    found = formats({"quant_method": "fp8", **settings})
    assert found.of("model.layers.0.mlp.up_proj", NAMES) == StoredFormat("float8", blocks)
    assert ("the quantization of the KV cache" in found.unused) == ("kv_cache_scheme" in settings)


def test_modelopt_settings_of_a_file_of_their_own(tmp_path: Path) -> None:
    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    layers["model.layers.0.mlp.down_proj"] = {"quant_algo": "FP8"}
    inside = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "exclude_modules": ["lm_head", "*router*"]}
    path = tmp_path / "hf_quant_config.json"
    path.write_text(json.dumps({"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": inside}))
    config = with_modelopt_settings({"model_type": "llama"}, path)
    found = formats(config["quantization_config"])
    up, down = (found.of(f"layers.0.mlp.{name}_proj", NAMES) for name in ("up", "down"))
    assert up == StoredFormat("float4", ((1, 16),), byte_scales="float8", second_scale="factor")
    assert down == StoredFormat("float8", (TENSOR, CHANNEL))
    assert found.of("layers.0.mlp.gate_proj", NAMES) == "is quantized, and the config has no format for it"
    assert "names it" in str(found.of("layers.0.mlp.router", NAMES))
    own = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
    assert with_modelopt_settings(own, path) is own
    assert with_modelopt_settings({}, None) == {}


def test_mlx_settings_of_single_modules() -> None:
    settings = {
        "group_size": 64,
        "bits": 4,
        "model.embed_tokens": {"group_size": 32, "bits": 8},
        "lm_head": False,
        "model.layers.0.mlp.up_proj": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    }
    found = formats(settings, "quantization")
    assert read_quantization({"quantization": settings, "quantization_config": settings}) == found
    assert read_quantization({"quantization_config": settings}) == found
    assert found.of("model.layers.0.self_attn.q_proj", NAMES) == StoredFormat("words", ((1, 64),), 4, offsets=True)
    assert found.of("model.embed_tokens", NAMES) == StoredFormat("words", ((1, 32),), 8, offsets=True)
    assert found.of("lm_head", NAMES) == "is quantized, and the config has no format for it"
    other = {"quantization": settings, "quantization_config": {**settings, "bits": 8}}
    assert read_quantization(other) == [
        "quantization_config: says something else than quantization; delete the one that is wrong"
    ]


def test_classes_of_modules_as_targets() -> None:
    config = compressed("mixed-precision", INT4)["quantization_config"]
    groups = config["config_groups"]
    groups["group_0"]["format"] = "pack-quantized"
    eight = {"num_bits": 8, "type": "int", "strategy": "channel"}
    groups["group_1"] = {"targets": ["Embedding"], "weights": eight, "format": "int-quantized"}
    found = formats(config)
    assert found.of("model.embed_tokens", NAMES) == StoredFormat("int8", (CHANNEL,))
    assert found.of("model.layers.0.mlp.up_proj", NAMES) == StoredFormat("words", ((1, 32),), 4, shaped=True)
    groups["group_1"]["targets"] = ["FusedMoE"]
    assert "several formats" in str(formats(config).of("model.layers.0.mlp.up_proj", NAMES))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"quant_method": "fp8", "weight_block_size": [128], "expert_dtype": "fp4", "rotated": True},
            [
                "weight_block_size = [128]: [rows, columns] expected",
                "expert_dtype = 'fp4': read with None or fp8 (did you mean 'fp8'?)",
                "rotated = True: not understood, and it may change the result",
            ],
        ),
        (
            {"quant_method": "fbgemm_fp8", "modules_to_not_convert": "lm_head"},
            ["modules_to_not_convert = 'lm_head': a list of names expected"],
        ),
        (
            compressed("pack-quantised", INT4)["quantization_config"],
            ["format = 'pack-quantised': read with "],
        ),
        (
            compressed("mixed-precision", INT4)["quantization_config"],
            ["config_groups.group_0.format = None: one of dense, pack-quantized, "],
        ),
        (
            compressed("pack-quantized", {**INT4, "strategy": "row", "dynamic": True, "gain": 2})[
                "quantization_config"
            ],
            [
                "config_groups.group_0.weights.dynamic = True: weights are read that were quantized before",
                "config_groups.group_0.weights.strategy = 'row': read with tensor or channel or group or block or",
                "config_groups.group_0.weights.gain = 2: not understood",
            ],
        ),
        (
            compressed("float-quantized", {**INT4, "strategy": "block"})["quantization_config"],
            [
                "config_groups.group_0.weights.type = 'int': float-quantized is read with float",
                "config_groups.group_0.weights.block_structure = None: [rows, columns] expected",
            ],
        ),
        (
            compressed("pack-quantized", INT4, transform_config={"u": {}}, ignore=["re:("])["quantization_config"],
            ["transform_config = {'u': {}}: weights that are changed so are not read", "ignore = ['re:(']: 're:(' is"],
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "pre_quant_scale": True},
            ["quant_algo = 'W4A16_AWQ': read with FP8", "pre_quant_scale = True: not read; export the original"],
        ),
        (
            {"quant_method": "bitsandbytes", "bnb_4bit_quant_storage": "bfloat16", "bnb_4bit_quant_type": "int4"},
            ["bnb_4bit_quant_type = 'int4'", "bnb_4bit_quant_storage = 'bfloat16'"],
        ),
        ({"quant_method": "hqq"}, ["quant_method = 'hqq': gptq, awq, mxfp4, fp8, fbgemm_fp8, compressed-tensors,"]),
        ({"quant_method": "fp_8"}, ["(did you mean 'fp8'?)"]),
        ([4], ["quantization_config: an object expected, found [4]"]),
    ],
)
def test_what_is_not_understood_is_refused_by_name(settings: object, expected: list[str]) -> None:
    found = problems(settings)
    assert len(found) == len(expected), found
    for text in expected:
        assert any(text in problem for problem in found), found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"group_size": 64, "bits": 7}, "bits = 7: read with 2 or 3 or 4 or 5 or 6 or 8"),
        ({"group_size": 0, "bits": 4}, "group_size = 0: a positive whole number expected"),
        ({"group_size": 32, "bits": 4, "mode": "nf4"}, "mode = 'nf4': read with affine or mxfp4 or mxfp8 or nvfp4"),
        ({"group_size": 64, "bits": 4, "mode": "mxfp4"}, "group_size = 64: read with 32"),
        ({"group_size": 64, "bits": 4, "a.b": {"group_size": 64, "bit": 4}}, "a.b.bits = None: read with 2 or"),
        ("4 bits", "quantization: an object expected, found '4 bits'"),
    ],
)
def test_mlx_settings_that_are_not_understood(settings: object, expected: str) -> None:
    assert any(expected in problem for problem in problems(settings, "quantization"))
