"""Bundles of adapted models against PEFT with nothing merged: the same logits, the same greedy ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import Listener, decoded, random_ids, runner_of
from tests.export.checkpoint.layouts import write_gpt2
from tests.oracle import write_random_gpt2
from tests.peft_oracle import AdaptedOracle, write_adapter, write_random

pytestmark = [pytest.mark.release, pytest.mark.parity, pytest.mark.usefixtures("little_parity")]

TOLERANCE = 1e-3
"""Largest allowed difference of any float32 logit."""

CASES: dict[str, dict[str, Any]] = {
    "matrices": {"target_modules": ["c_attn", "c_proj", "c_fc"]},
    "rank-stabilized patterns": {
        "target_modules": ["c_attn", "c_fc"],
        "use_rslora": True,
        "rank_pattern": {r"h\.0\.mlp\.c_fc": 3},
        "alpha_pattern": {"c_attn": 4},
    },
    "all biases": {"target_modules": ["c_attn"], "bias": "all"},
    "norms trained whole": {"target_modules": ["c_attn"], "modules_to_save": ["ln_1", "ln_f"]},
    "head adapted": {"target_modules": ["lm_head", "c_attn"]},
    "embedding adapted": {"target_modules": ["wte", "wpe"]},
    "both adapted": {"target_modules": ["wte", "lm_head"]},
    "head trained whole": {"target_modules": ["c_attn"], "modules_to_save": ["lm_head"]},
    "embedding trained whole": {"target_modules": ["c_attn"], "modules_to_save": ["wte"]},
    "tokens": {"target_modules": ["c_attn"], "trainable_token_indices": [0, 95]},
    "more tokens": {"target_modules": ["c_attn"], "vocabulary": 103},
    "more tokens, both trained whole": {
        "target_modules": ["c_attn"],
        "modules_to_save": ["wte", "lm_head"],
        "vocabulary": 103,
    },
}


OTHERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", {}, {"target_modules": "all-linear", "vocabulary": 70}),
    "tied llama, embedding": ("Llama", {"tie_word_embeddings": True}, {"target_modules": ["embed_tokens", "v_proj"]}),
    "tied qwen2, tokens": (
        "Qwen2",
        {"tie_word_embeddings": True},
        {"target_modules": "all-linear", "trainable_token_indices": [3, 5]},
    ),
    "gemma2, head": ("Gemma2", {"head_dim": 16}, {"target_modules": ["lm_head", "gate_proj"]}),
    "tied gpt_neox, head": (
        "GPTNeoX",
        {"tie_word_embeddings": True, "intermediate_size": 64, "num_key_value_heads": ...},
        {"target_modules": ["embed_out", "query_key_value"]},
    ),
    "phi, whose head has a bias": ("Phi", {}, {"target_modules": "all-linear", "vocabulary": 70}),
    "granite 4, whose gate and up are one": (
        "GraniteMoeHybrid",
        {"shared_intermediate_size": 24, "num_local_experts": 0, "layer_types": ["attention"] * 2, "mamba_n_heads": 4},
        {"target_modules": ["q_proj", "input_linear", "output_linear"]},
    ),
    "ernie4_5": ("Ernie4_5", {"head_dim": 8}, {"target_modules": "all-linear"}),
    "hunyuan": ("HunYuanDenseV1", {"head_dim": 8}, {"target_modules": "all-linear"}),
    "exaone4": ("Exaone4", {"sliding_window": 8}, {"target_modules": "all-linear"}),
    "olmo3": ("Olmo3", {"sliding_window": 8, "pad_token_id": 1}, {"target_modules": "all-linear"}),
    "glm": ("Glm", {"head_dim": 16, "pad_token_id": 1}, {"target_modules": ["q_proj", "gate_up_proj", "down_proj"]}),
    "glm4": ("Glm4", {"head_dim": 16, "pad_token_id": 1}, {"target_modules": "all-linear"}),
    "apertus": ("Apertus", {"rope_scaling": None}, {"target_modules": ["v_proj", "up_proj", "down_proj"]}),
    # transformers 4 writes the state after a prompt shorter than the convolution to the wrong place; 2 avoids that.
    "lfm2": (
        "Lfm2",
        {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False, "pad_token_id": 1}
        | {"conv_L_cache": 2},
        {"target_modules": ["q_proj", "v_proj", "out_proj", "in_proj", "w1", "w2", "w3"]},
    ),
    "seed_oss": ("SeedOss", {"head_dim": 8}, {"target_modules": "all-linear"}),
}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "base"
    return write_random_gpt2(folder, n_positions=24, tie_word_embeddings=request.param)


def export_adapted(base: Path, adapter: Path, target: Path) -> tuple[Bundle, list[str]]:
    listener = Listener()
    bundle, report = export(str(base), target, ExportOptions(scheme="fp32", adapter=str(adapter)), progress=listener)
    assert report.preferred.max_logprob_diff < TOLERANCE  # of the merged model, not of the base
    return bundle, listener.warnings


def check(bundle: Bundle, adapted: Any) -> None:
    oracle, runner = AdaptedOracle(adapted), runner_of(bundle)
    ids = random_ids(bundle, bundle.manifest.model.max_context)
    found = decoded(runner, runner.new_cache(), ids)
    np.testing.assert_allclose(found, oracle.logits(np.array([ids]))[0], rtol=0, atol=TOLERANCE)
    prompts = [random_ids(bundle, length, seed) for seed, length in enumerate((1, 5, 5, 9))]
    llm = LLM.load(bundle.path)
    for prompt, wanted in zip(prompts, oracle.greedy(prompts, 12), strict=True):
        answer = llm.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=[])
        assert list(answer.token_ids) == wanted


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_an_adapted_model_gives_the_logits_and_ids_of_peft(
    base: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    bundle, warnings = export_adapted(base, tmp_path / "adapter", tmp_path / "bundle")
    assert warnings == ["the checkpoint has no tokenizer: the bundle takes and gives token ids only"]
    check(bundle, adapted)


@pytest.mark.parametrize("layout", ["original", "trainer", "tied_with_head"])
def test_every_layout_of_the_base(tmp_path: Path, layout: Any) -> None:
    base = write_gpt2(tmp_path / "base", layout=layout, n_positions=24)
    adapted = write_adapter(tmp_path / "adapter", base, target_modules=["c_attn", "c_proj", "lm_head"])
    bundle, _ = export_adapted(base, tmp_path / "adapter", tmp_path / "bundle")
    check(bundle, adapted)


@pytest.mark.parametrize(("family", "config", "settings"), OTHERS.values(), ids=OTHERS.keys())
def test_merged_adapters_of_other_families_match_peft(
    tmp_path: Path, family: str, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    shape = {"hidden_size": 32, "vocab_size": 64, "max_position_embeddings": 24}
    base = write_random(tmp_path / "base", family, **shape, **config)
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    bundle, _ = export_adapted(base, tmp_path / "adapter", tmp_path / "bundle")
    check(bundle, adapted)


def test_a_trained_model(test_data: Path, tmp_path: Path) -> None:
    base = test_data / "models" / "gpt2-stories-0.9m"
    adapted = write_adapter(tmp_path / "adapter", base, spread=0.05, target_modules=["c_attn", "c_proj", "c_fc"])
    bundle, warnings = export_adapted(base, tmp_path / "adapter", tmp_path / "bundle")
    assert warnings == []
    check(bundle, adapted)
