"""Gemma 4: the config that is published, and the language model of a checkpoint that sees and hears."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edgegen.benchmark.memory_forecast import forecast_memory
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.graph_tensors import tensor_problems
from edgegen.cli import app
from edgegen.cli.info import describe
from edgegen.errors import UnsupportedModelError
from edgegen.graph.external_data import bytes_of_tables
from edgegen.model.ort_session import OneSession
from edgegen.options.engine import EngineOptions
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.gemma4 import GEMMA4, GEMMA4_WITH_VISION
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE, checkpoint_of, oracle_of, tokens

pytestmark = pytest.mark.usefixtures("little_parity")

CASE, SMALL_CASE = (next(case for case in CASES if str(case) == f"gemma4_text: {name}") for name in ("base", "E2B"))

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


E2B: dict[str, Any] = {
    "model_type": "gemma4_text",
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "hidden_size_per_layer_input": 256,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
    "sliding_window": 512,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    "final_logit_softcapping": 30.0,
}


SPARSE: dict[str, Any] = {
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_global_key_value_heads": 2,
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
}
"""26B-A4B: what differs from the dense model."""


def read(**changes: Any) -> DecoderConfig:
    return GEMMA4.read_config({**PUBLISHED, **changes})


def test_layers_of_full_attention_have_heads_of_their_own() -> None:
    config = read()
    attentions = config.attentions
    full = [i for i in range(60) if attentions[i].window is None]
    assert full == list(range(5, 60, 6))
    assert {(attentions[i].head_dim, attentions[i].kv_heads) for i in full} == {(512, 4)}
    assert {(attentions[i].head_dim, attentions[i].kv_heads) for i in range(60) if i not in full} == {(256, 16)}
    assert [i for i in range(60) if attentions[i].value_is_key] == full


def test_gemma4_has_the_published_number_of_parameters() -> None:
    required, _ = decoder_tensors(read())
    assert round(sum(map(math.prod, required.values())) / 1e9, 1) == 30.7


def test_26b_has_the_published_numbers_of_parameters_and_active_ones() -> None:
    config = read(**SPARSE)
    required, _ = decoder_tensors(config)
    total = sum(map(math.prod, required.values()))
    assert round(total / 1e9, 1) == 25.2
    assert round((total - 30 * (128 - 8) * 3 * 2816 * 704) / 1e9, 1) == 3.8


def test_both_ways_of_saying_it_mean_the_same() -> None:
    by_layer = {str(i): {"head_dim": 512, "num_key_value_heads": 4} for i in range(5, 60, 6)}
    assert read(per_layer_config=by_layer, global_head_dim=None, num_global_key_value_heads=None) == read()
    assert read(per_layer_config={}, attention_k_eq_v=False).attentions[5].head_dim == 256
    assert read(attention_k_eq_v=False).attentions[5].kv_heads == 16


def test_the_last_layers_of_e2b_read_keys_and_values_of_two_others() -> None:
    config = GEMMA4.read_config(E2B)
    assert [own.source for own in config.attentions.values()] == [None] * 15 + [13, 13, 13, 13, 14] * 4
    assert [layer.mlp.width for layer in config.layers if layer.mlp] == [6144] * 15 + [12288] * 20
    kv = kv_spec(config)
    assert kv.bytes_per_token == 4 * 2 * (12 * 256 + 3 * 512)
    assert [(one.layer, one.source) for one in kv.shared] == [(i, 14 if i % 5 == 4 else 13) for i in range(15, 35)]


def test_e2b_has_the_published_number_of_parameters_beside_the_table() -> None:
    required, _ = decoder_tensors(GEMMA4.read_config(E2B))
    table = math.prod(required["embed_per_layer.weight"])
    assert table == 262144 * 35 * 256
    assert round((sum(map(math.prod, required.values())) - table) / 1e9, 1) == 2.3


def test_only_the_first_pairs_of_wide_heads_turn() -> None:
    rope = read().attentions[5].rope
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
        (
            {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5},
            "top_k_experts = 5 is more than num_experts",
        ),
        ({"enable_moe_block": True, "num_experts": 4}, "top_k_experts"),
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


def test_keys_of_sharing_layers_that_a_checkpoint_has_are_not_read(tmp_path: Path) -> None:
    """The published checkpoints have them."""
    plain, more = (checkpoint_of(SMALL_CASE, tmp_path / name) for name in ("plain", "more"))
    stored = {name: tensor.read().copy() for name, tensor in open_safetensors(more / "model.safetensors").items()}
    for layer in (3, 4, 5):
        for name in ("k_proj", "v_proj", "k_norm"):
            tensor = f"model.layers.{layer}.self_attn.{name}.weight"
            assert tensor not in stored
            stored[tensor] = np.ones(3, np.float32)
    write_safetensors(more / "model.safetensors", stored)
    one, other = (export_to(folder, tmp_path / f"{folder.name}-bundle") for folder in (plain, more))
    assert other.manifest.files["weights.data"] == one.manifest.files["weights.data"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """With a table of more rows than there are tokens."""
    folder = tmp_path_factory.mktemp("small")
    case = replace(SMALL_CASE, config={**SMALL_CASE.config, "vocab_size_per_layer_input": 2048})
    return export(str(checkpoint_of(case, folder / "checkpoint")), folder / "bundle", ExportOptions(fast=True))[0]


def test_info_counts_neither_sharing_layers_nor_the_table(small: Bundle) -> None:
    """Two windows with a head of 16 and a full layer with one of 32; a table of 2,048 rows with 6 · 32 codes and
    6 · 32 / 64 scales of two bytes."""
    memory, size = describe(small)["memory"], small.manifest.files["weights.data"].size
    assert memory["kv_bytes_per_token"] == 2 * (2 * 16 + 32)
    assert memory["table_bytes"] == 2048 * (6 * 32 + 6 * 32 // 64 * 2)
    forecast = forecast_memory(small, EngineOptions(kernels="stock"))
    assert forecast.weights == int(1.46 * (size - memory["table_bytes"]))
    shown = CliRunner().invoke(app, ["info", str(small.path)]).output
    assert " MB weights (0.4 MB of them tables, read row by row) + " in shown
    assert "0.1 KiB per token" in shown


def test_a_graph_without_the_names_of_a_sharing_layer_is_refused(small: Bundle) -> None:
    variant = small.variant
    wrong = replace(variant.kv, shared=(replace(variant.kv.shared[0], past_key="elsewhere"), *variant.kv.shared[1:]))
    session = OneSession(small.file(variant.prefill), 1)
    found = tensor_problems(replace(variant, kv=wrong), small.manifest.model, session.inputs, session.outputs)
    assert found == ["it has no input 'elsewhere'"]


def test_an_fp16_table_is_widened_after_its_rows_are_chosen(tmp_path: Path) -> None:
    """Else a session would keep all of it, and twice as large."""
    bundle = export_to(checkpoint_of(SMALL_CASE, tmp_path / "checkpoint"), tmp_path / "bundle", "fp16")
    assert bytes_of_tables(bundle.file(bundle.variant.prefill).read_bytes()) == 2 * 96 * 6 * 32
