"""The language model of a Qwen3.5 with vision, and the configs that are refused because no runtime can run them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.qwen3_5 import QWEN3_5, QWEN3_5_WITH_VISION
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of, oracle_of


@pytest.mark.parametrize("variant", ["base", "untied"])
def test_the_language_model_inside_is_exported(variant: str, tmp_path: Path) -> None:
    """Under the names that transformers gives its tensors there, beside those of pictures and of drafts."""
    case = next(case for case in CASES if str(case) == f"qwen3_5_text: {variant}")
    alone = checkpoint_of(case, tmp_path / "alone")
    whole = tmp_path / "whole"
    whole.mkdir()
    stored = open_safetensors(alone / "model.safetensors")
    tensors = {name.replace("model.", "model.language_model.", 1): each.read() for name, each in stored.items()}
    tensors |= {name: np.ones(8, np.float32) for name in ("model.visual.merger.norm.weight", "mtp.norm.weight")}
    write_safetensors(whole / "model.safetensors", tensors)
    text = json.loads((alone / "config.json").read_text())
    config = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "image_token_id": 90,
        "text_config": {**text, "mtp_num_hidden_layers": 1},
        "tie_word_embeddings": text["tie_word_embeddings"],
        "vision_config": {"model_type": "qwen3_5", "depth": 1},
    }
    (whole / "config.json").write_text(json.dumps(config))
    ids = np.random.default_rng(0).integers(0, case.config["vocab_size"], (1, 60))
    expected = oracle_of(case, alone).logits(ids)[0]
    bundle = export_to(whole, tmp_path / "bundle")
    runner = runner_of(bundle)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids[0].tolist()), expected, rtol=0, atol=1e-3)
    assert bundle.manifest.model.family == "qwen3_5"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layer_types": ["linear_attention"] * 32}, "layer_types: at least one layer must have attention"),
        ({"full_attention_interval": 64}, "layer_types: at least one layer must have attention"),
        ({"linear_num_key_heads": 3}, "linear_num_key_heads = 3: must divide linear_num_value_heads = 32"),
        ({"attn_output_gate": False}, "attention without a gate is not supported"),
        ({"output_gate_type": "sigmoid"}, "gated delta nets have a gate of SiLU"),
        ({"layer_types": ["mamba"] * 32}, "32 entries out of 'linear_attention', 'full_attention' expected"),
    ],
)
def test_what_cannot_be_run_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        QWEN3_5.read_config(changed)
    assert said in str(caught.value)


def test_a_config_without_its_language_model_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="text_config: missing, so the language model is unknown"):
        QWEN3_5_WITH_VISION.read_config({"model_type": "qwen3_5", "vision_config": {}})


@pytest.mark.parametrize("with_vision", [False, True])
def test_experts_in_one_tensor_are_those_in_many(with_vision: bool, tmp_path: Path) -> None:
    """The published files have all experts of a layer in two tensors, gates and what they are multiplied by in one."""
    case = next(case for case in CASES if str(case) == "qwen3_5_moe_text: base")
    alone, whole = checkpoint_of(case, tmp_path / "alone"), tmp_path / "whole"
    whole.mkdir()
    stored = {name: each.read() for name, each in open_safetensors(alone / "model.safetensors").items()}
    tensors = {name: array for name, array in stored.items() if ".experts." not in name}
    for i in range(case.config["num_hidden_layers"]):
        module = f"model.layers.{i}.mlp.experts"
        of_all = {
            x: np.stack([stored[f"{module}.{n}.{x}_proj.weight"] for n in range(case.config["num_experts"])])
            for x in ("gate", "up", "down")
        }
        tensors[f"{module}.gate_up_proj"] = np.concatenate([of_all["gate"], of_all["up"]], axis=1)
        tensors[f"{module}.down_proj"] = of_all["down"]
    config: dict[str, Any] = json.loads((alone / "config.json").read_text())
    if with_vision:
        tensors = {name.replace("model.", "model.language_model.", 1): array for name, array in tensors.items()}
        tensors["model.visual.merger.norm.weight"] = np.ones(8, np.float32)
        config = {
            "model_type": "qwen3_5_moe",
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "text_config": config,
            "vision_config": {"model_type": "qwen3_5_moe", "depth": 1},
        }
    write_safetensors(whole / "model.safetensors", tensors)
    (whole / "config.json").write_text(json.dumps(config))
    first, second = export_to(alone, tmp_path / "first"), export_to(whole, tmp_path / "second")
    assert first.manifest.files[first.variant.weights] == second.manifest.files[second.variant.weights]
