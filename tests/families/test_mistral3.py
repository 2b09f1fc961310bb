"""The language model of a multimodal Mistral 3: a Mistral, or a Ministral 3."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.mistral import MISTRAL3_WITH_VISION
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of, oracle_of
from tests.oracle import import_torch, import_transformers

TEXT: dict[str, Any] = {
    "model_type": "mistral",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 96,
    "sliding_window": 12,
    "tie_word_embeddings": False,
}
VISION: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def test_text_is_continued_as_by_the_whole_model(tmp_path: Path) -> None:
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    config = transformers.Mistral3Config(text_config=TEXT, vision_config=VISION, tie_word_embeddings=False)
    model = transformers.Mistral3ForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(str(tmp_path / "checkpoint"))
    ids = np.random.default_rng(0).integers(0, TEXT["vocab_size"], (1, 50))
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).logits[0].numpy()
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    runner, tokens = runner_of(bundle), ids[0].tolist()
    assert np.abs(decoded(runner, runner.new_cache(), tokens) - expected).max() < 1e-3
    assert np.abs(prefilled(runner, runner.new_cache(), tokens, 7)[-1] - expected[-1]).max() < 1e-3
    assert bundle.manifest.model.family == "mistral3"


@pytest.mark.parametrize("variant", ["base", "tied"])
def test_a_ministral_inside_is_a_ministral(variant: str, tmp_path: Path) -> None:
    """Under the names that transformers 5 gives its tensors there."""
    case = next(case for case in CASES if (case.family, case.name) == ("ministral3", variant))
    alone = checkpoint_of(case, tmp_path / "alone")
    whole = tmp_path / "whole"
    whole.mkdir()
    tensors = {
        f"language_model.{name}": each.read() for name, each in open_safetensors(alone / "model.safetensors").items()
    }
    tensors["vision_tower.ln_pre.weight"] = np.ones(8, np.float32)
    write_safetensors(whole / "model.safetensors", tensors)
    text = json.loads((alone / "config.json").read_text())
    config = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}
    (whole / "config.json").write_text(json.dumps(config))
    ids = np.random.default_rng(0).integers(0, case.config["vocab_size"], (1, 60))
    expected = oracle_of(case, alone).logits(ids)[0]
    runner = runner_of(export_to(whole, tmp_path / "bundle"))
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids[0].tolist()), expected, rtol=0, atol=1e-3)


def test_another_text_model_is_refused_by_name() -> None:
    config = {"model_type": "mistral3", "text_config": {"model_type": "mistral4"}}
    with pytest.raises(UnsupportedModelError, match=r"text_config\.model_type: 'mistral4' is not supported"):
        MISTRAL3_WITH_VISION.read_config(config)
