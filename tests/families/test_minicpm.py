"""MiniCPM, which transformers does not have, against its Granite: the same multipliers, said as factors."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from edgegen import LLM
from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.minicpm import MINICPM
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.export.checkpoint.gguf_case import LLAMA, Case
from tests.export.checkpoint.gguf_models import write_gguf
from tests.export.checkpoint.gguf_steps import kv_heads, llama, permuted, rope, sizes
from tests.oracle import import_torch, import_transformers

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16, "tie_word_embeddings": True},
    "untied": {"scale_emb": 3.5, "scale_depth": 0.7, "dim_model_base": 256, "tie_word_embeddings": False},
}


def granite_of(scales: dict[str, Any], **more: Any) -> Any:
    """transformers' Granite that computes what a MiniCPM of these scales does."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    sizes_of = SIZES | more
    config = transformers.GraniteConfig(
        **sizes_of,
        embedding_multiplier=scales["scale_emb"],
        residual_multiplier=scales["scale_depth"] / math.sqrt(sizes_of["num_hidden_layers"]),
        logits_scaling=sizes_of["hidden_size"] / scales["dim_model_base"],
        attention_multiplier=(sizes_of["hidden_size"] // sizes_of["num_attention_heads"]) ** -0.5,
        tie_word_embeddings=scales["tie_word_embeddings"],
    )
    model = transformers.GraniteForCausalLM._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def minicpm_config(scales: dict[str, Any]) -> dict[str, Any]:
    auto = {"AutoModelForCausalLM": "modeling_minicpm.MiniCPMForCausalLM"}
    return {"model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "auto_map": auto, **SIZES, **scales}


@pytest.mark.parametrize("variant", VARIANTS)
def test_minicpm_computes_what_granite_does(variant: str, tmp_path: Path) -> None:
    torch, scales = import_torch(), VARIANTS[variant]
    model = granite_of(scales)
    model.save_pretrained(str(tmp_path / "checkpoint"))
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps(minicpm_config(scales)))
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    ids: list[int] = np.random.default_rng(0).integers(0, SIZES["vocab_size"], 50).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
        continued = model.generate(torch.tensor([ids[:8]]), max_new_tokens=64, do_sample=False, eos_token_id=None)
    runner = runner_of(bundle)
    assert np.abs(expected).max() > 0.5
    assert np.abs(decoded(runner, runner.new_cache(), ids) - expected).max() < 1e-3
    assert np.abs(prefilled(runner, runner.new_cache(), ids, 7)[-1] - expected[-1]).max() < 1e-3
    with LLM.load(bundle.path) as llm:
        answer = llm.generate(ids[:8], max_new_tokens=64, do_sample=False, eos_token_id=[])
    assert answer.token_ids == tuple(continued[0, 8:].tolist())
    assert bundle.manifest.model.family == "minicpm"


def test_a_gguf_file_says_the_same_as_factors(tmp_path: Path) -> None:
    torch, scales = import_torch(), VARIANTS["untied"]
    model = granite_of(scales, **LLAMA)

    def described(writer: GGUFWriter, config: Any) -> None:
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)

    steps = (sizes, kv_heads, llama, rope, described)
    case = replace(Case("minicpm", "", "", LLAMA), describe=steps, rearrange=(permuted,))
    path = write_gguf(tmp_path / "model.gguf", case, model)
    config = MINICPM.read_config(Checkpoint.open(str(path)).config)
    assert config.logit_multiplier == pytest.approx(scales["dim_model_base"] / LLAMA["hidden_size"])
    bundle = export_to(path, tmp_path / "bundle")
    ids: list[int] = np.random.default_rng(0).integers(0, LLAMA["vocab_size"], 20).tolist()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    runner = runner_of(bundle)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale_depth": 0}, "scale_depth: must be positive, found 0"),
        ({"sparse_config": {"dense_len": 0}}, "its attention always leaves blocks out"),
        ({"num_experts": 8}, "num_experts = 8: experts are not known of this family"),
    ],
)
def test_other_minicpm_models_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        MINICPM.read_config(minicpm_config(VARIANTS["tied"]) | changes)
