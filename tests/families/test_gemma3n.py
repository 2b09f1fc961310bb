"""Gemma 3n: the configs that are published, the language model of a checkpoint that sees and hears, and what no variant
of the text model can show."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import UnsupportedModelError
from edgegen.model.ort_session import open_session
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.gemma3n import GEMMA3N, GEMMA3N_WITH_VISION
from edgegen_export.graph.decoder import build_decode, build_prefill, kv_spec
from edgegen_export.graph.parameters import FedParameters
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE, checkpoint_of, oracle_of, tokens
from tests.oracle import edit_json, import_transformers

pytestmark = pytest.mark.usefixtures("divergence")

CASE, SMALL_CASE = (next(case for case in CASES if str(case) == f"gemma3n_text: {name}") for name in ("base", "E2B"))

E2B: dict[str, Any] = {
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
    "altup_active_idx": 0,
    "altup_coef_clip": 120.0,
    "altup_correct_scale": True,
    "altup_lr_multiplier": 1.0,
    "altup_num_inputs": 4,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2048,
    "hidden_size_per_layer_input": 256,
    "initializer_range": 0.02,
    "intermediate_size": [8192] * 30,
    "laurel_rank": 64,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 6,
    "max_position_embeddings": 32768,
    "model_type": "gemma3n_text",
    "num_attention_heads": 8,
    "num_hidden_layers": 30,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 10,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": 512,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 262400,
    "vocab_size_per_layer_input": 262144,
}
"""``text_config`` of the published checkpoint."""


def test_the_published_small_model() -> None:
    config = GEMMA3N.read_config(E2B)
    attentions = [config.attentions[i] for i in range(30)]
    full = [i for i in range(30) if attentions[i].window is None]
    assert full == list(range(4, 30, 5))
    assert {attentions[i].window for i in range(30) if i not in full} == {512}
    assert [own.source for own in attentions] == [None] * 20 + [18, 18, 18, 18, 19] * 2
    thetas = [own.rope.theta for own in attentions if own.rope]
    assert [i for i in range(30) if thetas[i] == 1e6] == full
    assert {own.scale for own in attentions} == {1.0}
    cutoff = NormalDist().inv_cdf(0.95)
    assert [layer.mlp.cutoff for layer in config.layers if isinstance(layer.mlp, MLP)] == [cutoff] * 10 + [None] * 20
    assert kv_spec(config).bytes_per_token == 4 * 2 * 20 * 2 * 256


@pytest.mark.parametrize(("config", "parameters"), [(E2B, 4_435_182_688), ({}, 6_835_235_568)], ids=["E2B", "E4B"])
def test_gemma3n_has_the_parameters_of_transformers(config: dict[str, Any], parameters: int) -> None:
    """Transformers 5's, which has no keys and values of layers that read others'."""
    required, _ = decoder_tensors(GEMMA3N.read_config(config))
    assert sum(map(math.prod, required.values())) == parameters


def test_graphs_of_the_published_shapes_load() -> None:
    config = GEMMA3N.read_config(E2B)
    nothing = np.zeros((), np.float32)
    required = {
        name: LazyTensor.from_array(np.broadcast_to(nothing, shape))
        for name, shape in decoder_tensors(config)[0].items()
    }
    params = FedParameters(folded(config, required))
    for build in (build_prefill, build_decode):
        session = open_session(build(config, params, kv_spec(config)).model().SerializeToString())
        (logits,) = (value for value in session.get_outputs() if value.name == "logits")
        assert logits.shape[-1] == 262400


def test_class_defaults_are_filled_in_inside_too() -> None:
    transformers = import_transformers()
    full = transformers.CONFIG_MAPPING["gemma3n_text"]().to_dict()
    whole = {"model_type": "gemma3n", "text_config": full}
    assert GEMMA3N_WITH_VISION.read_config(whole) == GEMMA3N_WITH_VISION.read_config({"model_type": "gemma3n"})
    assert GEMMA3N_WITH_VISION.read_config(whole) == GEMMA3N.read_config({})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_kv_shared_layers": 30}, "num_kv_shared_layers = 30: from 0 to 29 expected"),
        ({"num_kv_shared_layers": 27}, "num_kv_shared_layers = 27: no layer of full attention is left"),
        ({"intermediate_size": [8192] * 29}, "intermediate_size: 30 positive numbers expected, found 29"),
        ({"intermediate_size": [8192] * 29 + [-1]}, "intermediate_size: 30 positive numbers expected, found 30"),
        ({"activation_sparsity_pattern": [0.95]}, "activation_sparsity_pattern: 30 numbers from 0 to less than 1"),
        ({"activation_sparsity_pattern": [1.0] * 30}, "activation_sparsity_pattern: 30 numbers from 0 to less than 1"),
        ({"altup_num_inputs": 1}, "altup_num_inputs = 1: at least 2"),
        ({"altup_active_idx": 4}, "altup_active_idx = 4: one of 4 residual streams"),
        ({"altup_coef_clip": 0.0}, "altup_coef_clip: must be positive"),
        ({"laurel_rank": 0}, "laurel_rank: must be positive"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input: must be positive"),
        ({"vocab_size_per_layer_input": 0}, "vocab_size_per_layer_input: must be positive"),
    ],
    ids=str,
)
def test_what_the_model_cannot_have_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        GEMMA3N.read_config({**E2B, **changes})


def stored(folder: Path) -> dict[str, NDArray[np.float32]]:
    return {name: tensor.read().copy() for name, tensor in open_safetensors(folder / "model.safetensors").items()}


def test_the_language_model_of_a_whole_checkpoint_is_exported(tmp_path: Path) -> None:
    """Its tensors have another prefix, and those of what it sees and hears are left out."""
    text = checkpoint_of(CASE, tmp_path / "text", oracle=5)
    whole = tmp_path / "whole"
    whole.mkdir()
    renamed = {name.replace("model.", "model.language_model.", 1): array for name, array in stored(text).items()}
    for tower in ("vision_tower.timm_model.conv_stem.conv", "audio_tower.conformer.0.norm", "embed_vision.embedding"):
        renamed[f"model.{tower}.weight"] = np.zeros((2, 2), np.float32)
    renamed["model.embed_audio.hard_embedding_norm.weight"] = np.zeros(2, np.float32)
    write_safetensors(whole / "model.safetensors", renamed)
    inner = json.loads((text / "config.json").read_text("utf-8"))
    config = {
        "model_type": "gemma3n",
        "architectures": ["Gemma3nForConditionalGeneration"],
        "text_config": inner,
        "vision_config": {"hidden_size": 32},
        "audio_config": {"hidden_size": 16},
        "audio_soft_tokens_per_image": 188,
        "vision_soft_tokens_per_image": 256,
        **{f"{token}_token_id": 90 for token in ("boi", "eoi", "image", "boa", "eoa", "audio")},
        "tie_word_embeddings": True,
    }
    (whole / "config.json").write_text(json.dumps(config), "utf-8")
    bundle = export_to(whole, tmp_path / "bundle")
    ids = tokens(CASE, 40, seed=3)
    expected = oracle_of(replace(CASE, oracles=(5,)), text).logits(np.array([ids]))[0]
    runner = runner_of(bundle)
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < TOLERANCE
    assert bundle.manifest.model.family == "gemma3n"
    with pytest.raises(UnsupportedModelError, match="contradicts"):
        GEMMA3N_WITH_VISION.read_config({**config, "tie_word_embeddings": False})


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_tokens_beyond_the_table_of_embeddings_have_its_first_row(scheme: Any, tmp_path: Path) -> None:
    """The whole model of transformers does so before it calls the text model, which has no such rows."""
    short, long = (checkpoint_of(SMALL_CASE, tmp_path / name) for name in ("short", "long"))
    rows, (name, table) = 60, next(pair for pair in stored(long).items() if "embed_tokens_per_layer" in pair[0])
    write_safetensors(short / "model.safetensors", stored(short) | {name: table[:rows]})
    edit_json(short / "config.json", vocab_size_per_layer_input=rows)
    write_safetensors(
        long / "model.safetensors", stored(long) | {name: np.concatenate([table[:rows], table[:1].repeat(36, axis=0)])}
    )
    ids = tokens(SMALL_CASE, 40, seed=3)
    assert max(ids) >= rows
    expected = oracle_of(SMALL_CASE, long).logits(np.array([ids]))[0]
    bundle, report = export(str(short), tmp_path / "bundle", ExportOptions(scheme=scheme))
    runner = runner_of(bundle)
    found = decoded(runner, runner.new_cache(), ids)
    if scheme == "fp32":
        assert np.abs(found - expected).max() < TOLERANCE
        assert np.abs(prefilled(runner, runner.new_cache(), ids, 7)[-1] - expected[-1]).max() < TOLERANCE
    else:  # the reference of the report is the same model in float32
        whole, other = export(str(long), tmp_path / "other", ExportOptions(scheme=scheme))
        assert {name: one.mean_kl for name, one in report.variants.items()} == {
            name: one.mean_kl for name, one in other.variants.items()
        }
        same = runner_of(whole)
        np.testing.assert_array_equal(decoded(same, same.new_cache(), ids), found)


def test_corrections_are_within_their_limits(tmp_path: Path) -> None:
    """Transformers 4 cuts the weights off when the model runs, and 5 when it is trained."""
    checkpoint = checkpoint_of(CASE, tmp_path / "checkpoint")
    ids = tokens(CASE, 40, seed=3)
    before = oracle_of(CASE, checkpoint).logits(np.array([ids]))[0]
    edit_json(checkpoint / "config.json", altup_coef_clip=0.5)
    expected = oracle_of(CASE, checkpoint).logits(np.array([ids]))[0]
    assert np.abs(before - expected).max() > 2 * TOLERANCE
    runner = runner_of(export_to(checkpoint, tmp_path / "bundle"))
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < TOLERANCE


def test_the_first_embedding_may_be_zero(tmp_path: Path) -> None:
    """That of a padding token; nothing then has a magnitude to be divided by."""
    checkpoint = checkpoint_of(CASE, tmp_path / "checkpoint")
    arrays = stored(checkpoint)
    name = next(name for name in arrays if name.endswith("embed_tokens.weight"))
    arrays[name][7] = 0
    write_safetensors(checkpoint / "model.safetensors", arrays)
    ids = [7, 3, 7, 7, 50, 7]
    expected = oracle_of(CASE, checkpoint).logits(np.array([ids]))[0]
    runner = runner_of(export_to(checkpoint, tmp_path / "bundle"))
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < TOLERANCE
