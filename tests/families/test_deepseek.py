"""DeepSeekMoE, which transformers does not have: a Llama of its with Qwen 3's experts and a shared MLP beside them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter, RopeScalingType

from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.deepseek import DEEPSEEK
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint.gguf_case import LLAMA, Case
from tests.export.checkpoint.gguf_models import arrays_of, write_gguf
from tests.export.checkpoint.gguf_steps import Arrays, kv_heads, permuted, rope, sizes
from tests.export.checkpoint.layouts import write_safetensors
from tests.oracle import import_torch, import_transformers

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files

EXPERTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
SETTINGS = {**LLAMA, "num_hidden_layers": 3, "eos_token_id": 2}


def model_of(normalized: bool, dense: int = EXPERTS["first_k_dense_replace"]) -> Any:
    """A Llama whose layers after the ``dense`` ones have ``gate``, ``experts`` and ``shared_experts``."""
    torch, transformers = import_torch(), import_transformers()
    models = transformers.models
    block = models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock
    config = transformers.LlamaConfig(**SETTINGS)
    of_experts = transformers.Qwen3MoeConfig(
        hidden_size=config.hidden_size,
        num_experts=EXPERTS["n_routed_experts"],
        num_experts_per_tok=EXPERTS["num_experts_per_tok"],
        moe_intermediate_size=EXPERTS["moe_intermediate_size"],
        norm_topk_prob=normalized,
    )
    width = EXPERTS["n_shared_experts"] * EXPERTS["moe_intermediate_size"]
    of_shared = transformers.LlamaConfig(**{**SETTINGS, "intermediate_size": width})

    def with_shared(layer: Any) -> None:
        layer.mlp = block(of_experts)
        of_experts_alone, layer.mlp.shared_experts = layer.mlp.forward, models.llama.modeling_llama.LlamaMLP(of_shared)

        def forward(x: Any) -> Any:
            return of_experts_alone(x)[0] + layer.mlp.shared_experts(x)

        layer.mlp.forward = forward

    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).eval().float()
    for layer in model.model.layers[dense:]:
        with_shared(layer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-128, 129, parameter.shape) / 256)
    return model


def expected(model: Any, ids: list[int]) -> Any:
    torch = import_torch()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def written(folder: Path, model: Any, normalized: bool) -> Path:
    """As its own class writes it."""
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", arrays_of(model))
    kept = model.config.to_dict()
    config = {name: kept[name] for name in SETTINGS} | {"rope_theta": kept["rope_theta"], "rms_norm_eps": 1e-6}
    config |= {"model_type": "deepseek", "architectures": ["DeepseekForCausalLM"], "hidden_act": "silu", **EXPERTS}
    config |= {"norm_topk_prob": normalized, "moe_layer_freq": 1, "scoring_func": "softmax", "pretraining_tp": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def described(writer: GGUFWriter, config: Any) -> None:
    """Write the metadata that llama.cpp's converter adds to a Llama's."""
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_expert_feed_forward_length(EXPERTS["moe_intermediate_size"])
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_count(EXPERTS["n_routed_experts"])
    writer.add_expert_used_count(EXPERTS["num_experts_per_tok"])
    writer.add_expert_shared_count(EXPERTS["n_shared_experts"])


def one_dense_layer(writer: GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(1)


def weights_add_up(writer: GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(0)
    writer.add_expert_weights_norm(True)


def stacked(config: Any, arrays: Arrays) -> Arrays:
    """The matrices of all experts on an axis of their own."""
    found = {name: array for name, array in arrays.items() if ".mlp.experts." not in name}
    for i in range(config.num_hidden_layers):
        if f"model.layers.{i}.mlp.gate.weight" not in arrays:
            continue
        for x in ("gate_proj", "up_proj", "down_proj"):
            each = [arrays[f"model.layers.{i}.mlp.experts.{n}.{x}.weight"] for n in range(EXPERTS["n_routed_experts"])]
            found[f"model.layers.{i}.mlp.experts.{x}.weight"] = np.stack(each)
    return found


@pytest.mark.parametrize("normalized", [False, True], ids=["weights as they are", "weights that add up"])
def test_logits_are_those_of_the_same_experts(normalized: bool, tmp_path: Path) -> None:
    model = model_of(normalized)
    bundle = export_to(written(tmp_path / "model", model, normalized), tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 24)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected(model, ids), atol=1e-4)


@pytest.mark.parametrize("arch", ["deepseek", "bailingmoe"])
def test_a_gguf_file_reads_back_as_the_checkpoint(arch: str, tmp_path: Path) -> None:
    normalized = arch == "bailingmoe"
    model = model_of(normalized, 0 if normalized else 1)
    describe = (sizes, kv_heads, rope, described, weights_add_up if normalized else one_dense_layer)
    case = Case(arch, "LlamaConfig", "LlamaForCausalLM", SETTINGS, describe, (permuted, stacked))
    file = write_gguf(tmp_path / "model.gguf", case, model)
    checkpoint, wanted = Checkpoint.open(str(file)), arrays_of(model)
    assert checkpoint.config["model_type"] == "deepseek"
    assert checkpoint.config["norm_topk_prob"] is normalized
    dense = {"first_k_dense_replace": 0} if normalized else {}
    assert {name: checkpoint.config[name] for name in EXPERTS} == EXPERTS | dense
    assert set(checkpoint.tensors) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), array, err_msg=name)
    bundle = export_to(file, tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 12)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected(model, ids), atol=1e-4)


def test_other_routings_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="scoring_func = 'sigmoid': experts are weighed by a softmax only"):
        DEEPSEEK.read_config({**EXPERTS, "scoring_func": "sigmoid"})
    with pytest.raises(UnsupportedModelError, match="moe_layer_freq = 2"):
        DEEPSEEK.read_config({**EXPERTS, "moe_layer_freq": 2})


def test_without_experts_it_is_a_llama() -> None:
    config = DEEPSEEK.read_config({**SETTINGS, **EXPERTS, "first_k_dense_replace": 3})
    assert config.experts is None
