"""Gemma 4: the config that is published, and the language model of a checkpoint that sees and hears."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import decoder_tensors
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.gemma4 import GEMMA4, GEMMA4_WITH_VISION
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE, checkpoint_of, oracle_of, tokens

CASE = next(case for case in CASES if str(case) == "gemma4_text: base")

PUBLISHED: dict[str, Any] = {
    "model_type": "gemma4_text",
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_hidden_layers": 60,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "num_global_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "sliding_window": 1024,
    "final_logit_softcapping": 30.0,
}
"""The keys that say what the layers are; newer files have ``per_layer_config`` instead of the ``global`` ones."""


def read(**changes: Any) -> DecoderConfig:
    return GEMMA4.read_config({**PUBLISHED, **changes})


def test_layers_of_full_attention_have_heads_of_their_own() -> None:
    config = read()
    full = [i for i in range(60) if config.layers[i].window is None]
    assert full == list(range(5, 60, 6))
    assert {(config.head_dim_of(i), config.kv_heads_of(i)) for i in full} == {(512, 4)}
    assert {(config.head_dim_of(i), config.kv_heads_of(i)) for i in range(60) if i not in full} == {(256, 16)}
    assert [i for i in range(60) if config.layers[i].value_is_key] == full


def test_it_has_the_published_number_of_parameters() -> None:
    required, _ = decoder_tensors(read())
    assert round(sum(map(math.prod, required.values())) / 1e9, 1) == 30.7


def test_both_ways_of_saying_it_mean_the_same() -> None:
    by_layer = {str(i): {"head_dim": 512, "num_key_value_heads": 4} for i in range(5, 60, 6)}
    assert read(per_layer_config=by_layer, global_head_dim=None, num_global_key_value_heads=None) == read()
    assert read(per_layer_config={}, attention_k_eq_v=False).head_dim_of(5) == 256
    assert read(attention_k_eq_v=False).kv_heads_of(5) == 16


def test_only_the_first_pairs_of_wide_heads_turn() -> None:
    rope = read().layers[5].rope
    assert rope is not None
    found = rope.inverse_frequencies(4096)
    assert found.shape == (256,)
    np.testing.assert_allclose(found[:64], 1e6 ** -(np.arange(0, 128, 2) / 512), rtol=1e-6)
    assert not found[64:].any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_kv_shared_layers": 60}, "num_kv_shared_layers = 60: from 0 to 59 expected"),
        ({"num_kv_shared_layers": -1}, "num_kv_shared_layers = -1: from 0 to 59 expected"),
        ({"num_kv_shared_layers": 55}, "num_kv_shared_layers = 55: no layer of full attention is left"),
        (
            {"num_kv_shared_layers": 1, "per_layer_config": {"59": {"head_dim": 512}}},
            "layer 59 cannot read the keys of layer 53, which have another size",
        ),
        ({"hidden_size_per_layer_input": -8}, "hidden_size_per_layer_input: must be positive"),
        ({"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 100}, "vocabulary of 262144"),
        ({"enable_moe_block": True}, "enable_moe_block = True"),
        ({"num_global_key_value_heads": 5}, "must divide num_attention_heads = 32"),
        ({"per_layer_config": {"5": {"head_size": 512}}}, "head_size"),
        ({"global_head_dim": 500}, "heads of this size are not supported"),
    ],
    ids=str,
)
def test_what_other_models_of_the_type_have_is_refused(changes: dict[str, Any], said: str) -> None:
    config = {key: value for key, value in {**PUBLISHED, **changes}.items() if value is not ...}
    with pytest.raises(UnsupportedModelError, match=said):
        GEMMA4.read_config(config)


def test_the_language_model_of_a_whole_checkpoint_is_exported(tmp_path: Path) -> None:
    """Its tensors have another prefix, and those of what it sees and hears are left out."""
    text = checkpoint_of(CASE, tmp_path / "text")
    whole = tmp_path / "whole"
    whole.mkdir()
    renamed = {
        name.replace("model.", "model.language_model."): tensor.read().copy()
        for name, tensor in open_safetensors(text / "model.safetensors").items()
    }
    for tower in ("vision_tower.patch_embedder", "audio_tower.layers.0", "embed_vision.projection"):
        renamed[f"model.{tower}.weight"] = np.zeros((2, 2), np.float32)
    write_safetensors(whole / "model.safetensors", renamed)
    inner = json.loads((text / "config.json").read_text("utf-8"))
    config = {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        "text_config": inner,
        "vision_config": {"hidden_size": 32},
        "audio_config": None,
        "image_token_id": 90,
        "tie_word_embeddings": True,
    }
    (whole / "config.json").write_text(json.dumps(config), "utf-8")
    bundle = export_to(whole, tmp_path / "bundle")
    ids = tokens(CASE, 40, seed=3)
    expected = oracle_of(CASE, text).logits(np.array([ids]))[0]
    runner = runner_of(bundle)
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < TOLERANCE
    assert bundle.manifest.model.family == "gemma4"
    with pytest.raises(UnsupportedModelError, match="contradicts"):
        GEMMA4_WITH_VISION.read_config({**config, "tie_word_embeddings": False})
