"""Baichuan, which transformers does not have, against its Llama: the same weights, split, under a normalized head.

Formulas: the code of baichuan-inc/Baichuan2-7B-Chat and Baichuan2-13B-Chat, whose NormHead is torch's ``normalize`` of
the weight, and whose ALiBi has the slopes of BLOOM.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import UnsupportedModelError
from edgegen_export.families.baichuan import BAICHUAN
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import export_to, runner_of
from tests.families.cases import Case
from tests.families.harness import assert_computes, worst_kl
from tests.families.test_exactness import assert_bit_exact
from tests.oracle import import_torch, import_transformers

pytestmark = pytest.mark.usefixtures("divergence")

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
ROTATING = {"max_position_embeddings": 128, "model_max_length": 128}
ALIBI = {"model_max_length": 128}
VARIANTS: dict[str, dict[str, Any]] = {
    "Baichuan2-7B": {**ROTATING, "vocab_size": 125696, "num_attention_heads": 4},
    "Baichuan-7B": {**ROTATING, "vocab_size": 64000, "num_attention_heads": 4},
    "Baichuan2-13B": {**ALIBI, "vocab_size": 125696, "num_attention_heads": 4},
    "Baichuan-13B, heads that are no power of two": {**ALIBI, "vocab_size": 64000, "num_attention_heads": 5},
}
SEED = 1
"""Chosen so that greedy decoding meets no near ties."""

Judge = Callable[[list[int]], NDArray[np.float32]]


def written(variant: str, folder: Path) -> Judge:
    """Write a random checkpoint; returns the logits of every position of some ids."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(SEED)
    config = {**SIZES, **VARIANTS[variant]}
    heads, norm_head = config["num_attention_heads"], config["vocab_size"] == 125696
    config["hidden_size"] = 16 * heads
    model = transformers.LlamaForCausalLM._from_config(
        transformers.LlamaConfig(**{**config, "max_position_embeddings": 128}), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if "norm" in name else noise * (0.4 if "embed" in name else 0.3))
        model.model.norm.weight.mul_(3 if norm_head else 1)
        tensors = dict(model.state_dict())
        for i in range(config["num_hidden_layers"]):
            module = f"model.layers.{i}.self_attn"
            tensors[f"{module}.rotary_emb.inv_freq"] = torch.ones(8)  # stored in published files, and ignored
            tensors[f"{module}.W_pack.weight"] = torch.cat([tensors.pop(f"{module}.{x}_proj.weight") for x in "qkv"])
        if norm_head:
            tensors["lm_head.weight"] = tensors["lm_head.weight"].clone()
            model.lm_head.weight.copy_(torch.nn.functional.normalize(model.lm_head.weight))
    folder.mkdir()
    import_safetensors_torch().save_file(tensors, str(folder / "model.safetensors"))
    published = {"model_type": "baichuan", "architectures": ["BaichuanForCausalLM"], **config}
    (folder / "config.json").write_text(json.dumps(published), "utf-8")

    def logits(ids: list[int]) -> NDArray[np.float32]:
        given = torch.tensor([ids])
        with torch.no_grad():
            if "max_position_embeddings" in config:
                return model(given).logits[0].numpy()
            bloom = transformers.models.bloom.modeling_bloom
            biases = bloom.build_alibi_tensor(torch.ones_like(given), heads, torch.float32).reshape(1, heads, 1, -1)
            causal = torch.full((len(ids), len(ids)), torch.finfo(torch.float32).min).triu(1)
            return model(given, attention_mask=biases + causal, position_ids=torch.zeros_like(given)).logits[0].numpy()

    return logits


def import_safetensors_torch() -> Any:
    return pytest.importorskip("safetensors.torch", reason="torch is the oracle here, and it is not installed")


@pytest.mark.parametrize("variant", VARIANTS)
def test_baichuan_computes_what_llama_does(variant: str, tmp_path: Path) -> None:
    judge = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 64000, 50).tolist()
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert_computes(runner_of(bundle), judge, ids)
    assert bundle.manifest.model.family == "baichuan"


@pytest.mark.parametrize("variant", ["Baichuan2-7B", "Baichuan2-13B"])
def test_int8_is_bit_exact(variant: str, tmp_path: Path) -> None:
    written(variant, tmp_path / "checkpoint")
    bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme="int8"))
    assert worst_kl(report) < 0.5
    case = Case("baichuan", variant, VARIANTS[variant])
    assert_bit_exact(bundle, case)


def test_an_unknown_vocabulary_does_not_tell_the_head() -> None:
    with pytest.raises(UnsupportedModelError, match="vocab_size = 96: 64000 or 125696 expected"):
        BAICHUAN.read_config({**SIZES, **ROTATING, "num_attention_heads": 4, "vocab_size": 96})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_position_embeddings": None, "model_max_length": None}, "max_position_embeddings: missing"),
        ({"hidden_size": 5120, "num_attention_heads": 40}, "files of 13B, which has ALiBi, do not have this key"),
        ({"rope_theta": 500000.0}, "rope_theta = 500000.0: this family rotates by 10000"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "this family does not scale rotations"),
        ({"num_key_value_heads": 2}, "num_key_value_heads = 2: this family has as many keys as queries"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings = True: this family has a head of its own"),
    ],
)
def test_what_its_code_does_not_read_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said) as caught:
        BAICHUAN.read_config({**SIZES, **VARIANTS["Baichuan2-7B"], **changes})
    assert "problems" not in str(caught.value)
