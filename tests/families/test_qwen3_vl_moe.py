"""Qwen3-VL MoE: its experts in one tensor for each matrix, in the layout of either version of transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families import FAMILIES
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE, checkpoint_of
from tests.oracle import TINY_TOWER, import_torch, import_transformers
from tests.second_oracle import SECOND, open_oracle

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "max_position_embeddings": 96,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "rope_theta": 100.0,
    "rope_scaling": {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "experts in every layer": {},
    "gate and up as wide as hidden": {"moe_intermediate_size": 32},
    "as wide as hidden": {"moe_intermediate_size": 64},
    "a dense layer": {"mlp_only_layers": [0]},
    "no experts": {"mlp_only_layers": [0, 1]},
    "attention bias": {"attention_bias": True},
}
AMBIGUOUS = {"gate and up as wide as hidden", "as wide as hidden"}
"""Where transformers 5.24 cannot tell the layout of one of the tensors by its shape, and takes it for its own."""


@pytest.mark.parametrize("variant", CONFIGS)
def test_published_files_have_inputs_first(variant: str, tmp_path: Path) -> None:
    """As transformers 4.57 writes them; 5.24 reads the same from them."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    config_class = transformers.CONFIG_MAPPING["qwen3_vl_moe"]
    tower = {name: value for name, value in TINY_TOWER.items() if hasattr(config_class().vision_config, name)}
    config = config_class(text_config={**TEXT, **CONFIGS[variant]}, vision_config=tower)
    model = transformers.Qwen3VLMoeForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    ids = np.random.default_rng(0).integers(2, TEXT["vocab_size"], (1, 60))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.nan_to_num() * 0 + torch.randn_like(parameter) * 0.2)
        expected = model(torch.from_numpy(ids)).logits[0].numpy()
    model.save_pretrained(str(tmp_path / "checkpoint"))
    if variant not in AMBIGUOUS:
        later = open_oracle(tmp_path / "checkpoint", SECOND).logits(ids)[0]
        np.testing.assert_allclose(later, expected, rtol=0, atol=TOLERANCE)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    runner, tokens = runner_of(bundle), ids[0].tolist()
    found = decoded(runner, runner.new_cache(), tokens)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
    assert np.abs(prefilled(runner, runner.new_cache(), tokens, 7)[-1] - expected[-1]).max() < TOLERANCE


@pytest.mark.parametrize("inputs_first", [True, False])
def test_a_bundle_is_that_of_a_qwen3_moe(inputs_first: bool, tmp_path: Path) -> None:
    """Which int8's exactness is tested with."""
    case = next(case for case in CASES if str(case) == "qwen3_moe: weights that add up to one")
    alone, whole = checkpoint_of(case, tmp_path / "alone"), tmp_path / "whole"
    whole.mkdir()
    tensors = {name: each.read() for name, each in open_safetensors(alone / "model.safetensors").items()}
    for i in range(case.config["num_hidden_layers"]):
        module = f"model.layers.{i}.mlp.experts"
        gate, up, down = (
            np.stack([tensors.pop(f"{module}.{n}.{x}_proj.weight") for n in range(case.config["num_experts"])])
            for x in ("gate", "up", "down")
        )
        stacks = {"gate_up_proj": np.concatenate([gate, up], axis=1), "down_proj": down}
        for name, stack in stacks.items():
            tensors[f"{module}.{name}"] = np.ascontiguousarray(stack.transpose(0, 2, 1)) if inputs_first else stack
    tensors = {name.replace("model.", "model.language_model.", 1): array for name, array in tensors.items()}
    tensors["model.visual.merger.norm.weight"] = np.ones(8, np.float32)
    write_safetensors(whole / "model.safetensors", tensors)
    text = json.loads((alone / "config.json").read_text("utf-8"))
    kept = {key: value for key, value in text.items() if "window" not in key and key != "architectures"}
    config = {
        "model_type": "qwen3_vl_moe",
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "text_config": {**kept, "model_type": "qwen3_vl_moe_text"},
        "vision_config": {"model_type": "qwen3_vl_moe", "depth": 1},
    }
    # The texts that calibrate a model without a tokenizer start and end with these.
    config |= {key: text[key] for key in ("bos_token_id", "eos_token_id")}
    (whole / "config.json").write_text(json.dumps(config), "utf-8")
    first, second = (
        export(str(folder), tmp_path / name, ExportOptions(scheme="int8"))[0]
        for folder, name in ((alone, "one"), (whole, "other"))
    )
    assert first.manifest.files[first.variant.weights] == second.manifest.files[second.variant.weights]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm_topk_prob": False}, "norm_topk_prob = False: the weights of the chosen experts must sum to one"),
        ({"use_sliding_window": True}, "use_sliding_window = True: not understood"),
        ({"rope_theta": None}, "rope_theta: missing"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok = 7 is more than num_experts = 6"),
    ],
)
def test_what_the_class_does_not_compute_is_refused(changes: dict[str, Any], said: str) -> None:
    config = {"model_type": "qwen3_vl_moe", "text_config": {**TEXT, **changes}}
    with pytest.raises(UnsupportedModelError, match=said):
        find_architecture(config, FAMILIES).read_config(config)


def test_a_stack_of_another_shape_is_refused(tmp_path: Path) -> None:
    (wrapped,) = (one for one in FAMILIES if "qwen3_vl_moe" in one.model_types)
    config = {"model_type": "qwen3_vl_moe", "text_config": TEXT, "architectures": list(wrapped.classes)}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    name = "model.language_model.layers.0.mlp.experts.down_proj"
    write_safetensors(tmp_path / "model.safetensors", {name: np.ones((6, 48, 60), np.float32)})
    with pytest.raises(TensorError, match=r"experts\.down_proj: shape \[6, 48, 60\], but .* \[6, 48, 64\]"):
        export_to(tmp_path, tmp_path / "bundle")
