"""Adapters kept beside a bundle of their base, against PEFT with nothing merged: the same logits and greedy ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UnsupportedModelError
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen_export.kept_adapter import export_adapter
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint.lora.test_against_peft import TOLERANCE
from tests.oracle import write_random_gpt2
from tests.peft_oracle import AdaptedOracle, write_adapter, write_random

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("whole_parity")]

SHAPE: dict[str, Any] = {"hidden_size": 32, "vocab_size": 64, "max_position_embeddings": 24}

FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama, head too": (
        "Llama",
        {"head_dim": 16},
        {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"]},
    ),
    "llama, patterns": (
        "Llama",
        {},
        {
            "target_modules": "all-linear",
            "use_rslora": True,
            "rank_pattern": {"q_proj": 3, "down_proj": 20},
            "alpha_pattern": {"v_proj": 11},
        },
    ),
    "tied qwen2": ("Qwen2", {"tie_word_embeddings": True}, {"target_modules": "all-linear"}),
    "gemma2": ("Gemma2", {"head_dim": 16}, {"target_modules": ["q_proj", "o_proj", "gate_proj"]}),
    "gpt_neox": (
        "GPTNeoX",
        {"intermediate_size": 64, "num_key_value_heads": ...},
        {"target_modules": ["query_key_value", "dense"]},
    ),
    "phi3": ("Phi3", {"pad_token_id": 1}, {"target_modules": ["qkv_proj", "gate_up_proj"]}),
    "exaone4": ("Exaone4", {"sliding_window": 8}, {"target_modules": "all-linear"}),
    "olmo3": ("Olmo3", {"sliding_window": 8, "pad_token_id": 1}, {"target_modules": "all-linear"}),
    "granite": ("Granite", {"residual_multiplier": 0.5, "attention_multiplier": 0.1}, {"target_modules": "all-linear"}),
}


def check(bundle: Bundle, adapted: Any, options: EngineOptions | None = None) -> None:
    oracle, runner = AdaptedOracle(adapted), runner_of(bundle)
    ids = random_ids(bundle, bundle.manifest.model.max_context)
    found = decoded(runner, runner.new_cache(), ids)
    np.testing.assert_allclose(found, oracle.logits(np.array([ids]))[0], rtol=0, atol=TOLERANCE)
    prompts = [random_ids(bundle, length, seed) for seed, length in enumerate((1, 5, 5, 9))]
    with LLM.load(bundle.path, options=options) as llm:
        for prompt, wanted in zip(prompts, oracle.greedy(prompts, 12), strict=True):
            answer = llm.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=[])
            assert list(answer.token_ids) == wanted


@pytest.mark.parametrize(("family", "config", "settings"), FAMILIES.values(), ids=FAMILIES.keys())
def test_a_kept_adapter_gives_the_logits_and_ids_of_peft(
    tmp_path: Path, family: str, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    checkpoint = write_random(tmp_path / "checkpoint", family, **SHAPE, **config)
    adapted = write_adapter(tmp_path / "adapter", checkpoint, **settings)
    base = export_to(checkpoint, tmp_path / "base")
    bundle, report = export_adapter(str(checkpoint), base, tmp_path / "kept", str(tmp_path / "adapter"))
    assert report.preferred.max_logprob_diff < TOLERANCE  # of the merged model, not of the base
    check(bundle, adapted)


@pytest.mark.parametrize("kernels", ["auto", "stock"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_gpt2_with_and_without_the_kernels(tmp_path: Path, tied: bool, kernels: Any) -> None:
    checkpoint = write_random_gpt2(tmp_path / "checkpoint", n_positions=24, tie_word_embeddings=tied)
    adapted = write_adapter(tmp_path / "adapter", checkpoint, target_modules=["c_attn", "c_proj", "c_fc"])
    base = export_to(checkpoint, tmp_path / "base")
    bundle, _ = export_adapter(str(checkpoint), base, tmp_path / "kept", str(tmp_path / "adapter"))
    check(bundle, adapted, EngineOptions(kernels=kernels))


@pytest.mark.release
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_beside_a_quantized_base_it_costs_about_what_the_merged_export_costs(
    test_data: Path, tmp_path: Path, scheme: Scheme
) -> None:
    """Smoothing, key rotation and formats are the base's; the merged export chooses them anew."""
    checkpoint, adapter = test_data / "models" / "stories260K", tmp_path / "adapter"
    write_adapter(adapter, checkpoint, spread=0.05, target_modules="all-linear")
    base, _ = export(str(checkpoint), tmp_path / "base", ExportOptions(scheme=scheme))
    _, merged = export(str(checkpoint), tmp_path / "merged", ExportOptions(scheme=scheme, adapter=str(adapter)))
    _, kept = export_adapter(str(checkpoint), base, tmp_path / "kept", str(adapter))
    for variant in kept.variants:
        assert kept.variants[variant].mean_kl < 2 * merged.variants[variant].mean_kl, variant


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "norms": ({"target_modules": ["q_proj"], "modules_to_save": ["norm"]}, "model.norm.weight"),
    "embedding": ({"target_modules": ["embed_tokens"]}, "the head, which was tied"),
    "tied head": ({"target_modules": ["lm_head"]}, "the head, which was tied"),
    "tokens": ({"target_modules": ["q_proj"], "trainable_token_indices": [3]}, "model.embed_tokens.weight"),
    "vocabulary": ({"target_modules": ["q_proj"], "vocabulary": 70}, "the size of the vocabulary"),
    "biases": ({"target_modules": ["q_proj"], "bias": "lora_only"}, "model.layers.0.self_attn.q_proj.bias"),
}


@pytest.mark.parametrize(("settings", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_kept_is_refused_by_name(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    checkpoint = write_random(tmp_path / "base", "Qwen2", **SHAPE, tie_word_embeddings=True)
    write_adapter(tmp_path / "adapter", checkpoint, **settings)
    base = export_to(checkpoint, tmp_path / "bundle")
    with pytest.raises(UnsupportedModelError) as caught:
        export_adapter(str(checkpoint), base, tmp_path / "kept", str(tmp_path / "adapter"))
    said = str(caught.value)
    assert named in said
    assert said.endswith("Leave --keep-adapter out, and it is merged into a bundle of its own.")
    assert not (tmp_path / "kept").exists()


def test_an_untied_embedding_is_refused_too(tmp_path: Path) -> None:
    checkpoint = write_random(tmp_path / "base", "Qwen2", **SHAPE, tie_word_embeddings=False)
    write_adapter(tmp_path / "adapter", checkpoint, target_modules=["embed_tokens", "q_proj"])
    base = export_to(checkpoint, tmp_path / "bundle")
    with pytest.raises(UnsupportedModelError, match=r"embed\.weight\nLeave"):
        export_adapter(str(checkpoint), base, tmp_path / "kept", str(tmp_path / "adapter"))
