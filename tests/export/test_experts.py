"""Mixture of experts against transformers, and how the experts' weights lie in a bundle."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle import Bundle
from edgegen.errors import TensorError, UnsupportedModelError
from edgegen.llm import open_runner
from edgegen.options import EngineOptions
from edgegen_export.architecture import find_architecture
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families import FAMILIES
from tests.checkpoint.layouts import write_safetensors
from tests.export.bundles import decoded, export_to, prefilled, random_ids, runner_of
from tests.oracle import import_torch, import_transformers

TOLERANCE = 1e-3
"""Largest allowed difference of any float32 logit."""

COMMON = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MIXTRAL = {"model_type": "mixtral", "intermediate_size": 96, "num_local_experts": 4}
QWEN = {
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
CASES: dict[str, dict[str, Any]] = {
    "mixtral": MIXTRAL,
    "mixtral, one expert of three, a window": {
        **MIXTRAL,
        "intermediate_size": 16,
        "num_local_experts": 3,
        "num_experts_per_tok": 1,
        "sliding_window": 12,
    },
    "mixtral, every expert": {**MIXTRAL, "num_experts_per_tok": 4},
    "qwen3_moe": QWEN,
    "qwen3_moe, normalized, a window": {
        **QWEN,
        "norm_topk_prob": True,
        "use_sliding_window": True,
        "sliding_window": 12,
    },
    "qwen3_moe, one expert": {**QWEN, "num_experts_per_tok": 1},
    "qwen3_moe, no layer with experts": {**QWEN, "mlp_only_layers": [0, 1]},
    "qwen3_moe, no layer at its step": {**QWEN, "decoder_sparse_step": 3},
    "olmoe": {"model_type": "olmoe", "intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 2},
    "granitemoe": {
        "model_type": "granitemoe",
        "intermediate_size": 96,
        "num_local_experts": 4,
        "embedding_multiplier": 6.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 2.0,
    },
}


@dataclass(frozen=True)
class Subject:
    """A random checkpoint and what transformers makes of it."""

    folder: Path
    model: Any

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """[t, vocab] of ids without past."""
        torch = import_torch()
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].numpy()


def write(folder: Path, config: Mapping[str, Any], seed: int = 0) -> Subject:
    """Every parameter random; routers so steep that rounding does not decide which experts are chosen."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(seed)
    options = {**COMMON, **config}
    made = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.dim() == 1:
                parameter.add_(0.3 * noise)
            elif "router" in name or name.endswith("mlp.gate.weight") or "block_sparse_moe.gate" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * (0.4 if "embed" in name else 1.5 * parameter.shape[-1] ** -0.5))
    model.save_pretrained(str(folder))
    return Subject(folder, model)


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return write(tmp_path_factory.mktemp("mixtral") / "checkpoint", MIXTRAL)


@pytest.fixture(scope="module")
def mixtral_int8(mixtral: Subject) -> Bundle:
    return export_to(mixtral.folder, mixtral.folder.parent / "int8", "int8")


# Against transformers.


@pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())
def test_logits_and_greedy_ids_are_those_of_transformers(tmp_path: Path, config: dict[str, Any]) -> None:
    subject = write(tmp_path / "checkpoint", config)
    bundle = export_to(subject.folder, tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 48)
    expected = subject.logits(ids)

    cache = runner.new_cache()
    steps = np.concatenate([decoded(runner, cache, [token]) for token in ids])
    np.testing.assert_allclose(steps, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=TOLERANCE)
    for chunk in (5, 16, 48):
        ends = [min(at + chunk, 48) - 1 for at in range(0, 48, chunk)]
        found = prefilled(runner, runner.new_cache(), ids, chunk)
        np.testing.assert_allclose(found, expected[ends], rtol=0, atol=TOLERANCE)

    # Where transformers agrees with every choice so far, its next choice is that of its own greedy decoding.
    cache, prompt = runner.new_cache(), ids[:5]
    logits = [prefilled(runner, cache, prompt, 5)[0]]
    while len(logits) < 64:
        logits.append(decoded(runner, cache, [int(logits[-1].argmax())])[0])
    greedy = [int(row.argmax()) for row in logits]
    assert greedy == subject.logits(prompt + greedy[:-1])[4:].argmax(-1).tolist()
    assert len(set(greedy)) > 8

    exact = bundle.json(bundle.manifest.parity)
    assert exact["top1_agreement"] == 1
    assert exact["max_abs_diff"] <= TOLERANCE


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "olmoe", "granitemoe"])
def test_int8_is_near(tmp_path: Path, name: str) -> None:
    subject = write(tmp_path / "checkpoint", CASES[name])
    bundle = export_to(subject.folder, tmp_path / "bundle", "int8")
    ids = random_ids(bundle, 96)
    expected, found = subject.logits(ids), decoded(runner_of(bundle), runner_of(bundle).new_cache(), ids)
    assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > 0.97
    assert (expected.argmax(-1) == found.argmax(-1)).mean() > 0.85
    assert bundle.json(bundle.manifest.parity)["mean_kl"] < 0.1


# In the bundle.


def initializers(bundle: Bundle) -> dict[str, NDArray[Any]]:
    model: onnx.ModelProto = cast(Any, onnx).load(bundle.file("decode.onnx"))
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_codes_are_the_checkpoints_weights_rounded(mixtral: Subject, mixtral_int8: Bundle) -> None:
    stored, theirs = initializers(mixtral_int8), mixtral.model.state_dict()
    for layer in range(2):
        module, block = f"layers.{layer}.mlp", f"model.layers.{layer}.block_sparse_moe"
        router = stored[f"{module}.router.weight"]
        np.testing.assert_array_equal(router, theirs[f"{block}.gate.weight"].numpy())

        def weights(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            codes, scales = stored[f"{name}.table"], stored[f"{name}.scales"]
            assert codes.dtype == np.uint8
            steps = np.repeat(scales, 32, axis=2)  # the largest block that divides both 64 and 96
            return (codes.astype(np.float32) - 128) * steps, steps

        gate_up, gate_up_steps = weights(f"{module}.gate+up.weight")
        down, down_steps = weights(f"{module}.down.weight")
        assert gate_up.shape == (4, 192, 64)
        assert down.shape == (4, 64, 96)
        for expert in range(4):
            w1, w2, w3 = (theirs[f"{block}.experts.{expert}.w{n}.weight"].numpy() for n in (1, 2, 3))
            assert (np.abs(gate_up[expert, 0::2] - w1) <= 0.501 * gate_up_steps[expert, 0::2]).all()
            assert (np.abs(gate_up[expert, 1::2] - w3) <= 0.501 * gate_up_steps[expert, 1::2]).all()
            assert (np.abs(down[expert] - w2) <= 0.501 * down_steps[expert]).all()


def test_weights_are_stored_once_and_counted(mixtral: Subject, mixtral_int8: Bundle) -> None:
    places: list[dict[str, list[tuple[str, str]]]] = []
    for graph in ("prefill.onnx", "decode.onnx", "pair.onnx"):
        model: onnx.ModelProto = cast(Any, onnx).load(mixtral_int8.file(graph), load_external_data=False)
        stored = [tensor for tensor in model.graph.initializer if tensor.external_data]
        places.append({tensor.name: [(entry.key, entry.value) for entry in tensor.external_data] for tensor in stored})
    assert places[0] == places[1] == places[2]
    assert sum(".mlp." in name for name in places[0]) == 2 * 5  # codes and scales of two matrices, and the router
    assert mixtral_int8.manifest.model.parameters == mixtral.model.num_parameters()


def test_a_bundle_with_experts_asks_for_an_onnxruntime_that_has_them(tmp_path: Path, mixtral_int8: Bundle) -> None:
    assert mixtral_int8.manifest.minimum_onnxruntime == "1.31.0"
    dense = write(tmp_path / "checkpoint", CASES["qwen3_moe, no layer with experts"])
    assert export_to(dense.folder, tmp_path / "bundle", "int8").manifest.minimum_onnxruntime == "1.23.2"


def test_two_experts_per_token_leave_chunks_threads_and_graphs_bit_equal(mixtral_int8: Bundle) -> None:
    runner, ids = runner_of(mixtral_int8), random_ids(mixtral_int8, 48)
    whole = prefilled(runner, runner.new_cache(), ids, 48)[-1]
    for chunk in (2, 6, 16, 24):
        np.testing.assert_array_equal(prefilled(runner, runner.new_cache(), ids, chunk)[-1], whole)
    np.testing.assert_array_equal(decoded(runner, runner.new_cache(), ids)[-1], whole)
    for options in (EngineOptions(threads=2), EngineOptions(sessions="two", threads=1)):
        other = open_runner(mixtral_int8, options)
        np.testing.assert_array_equal(prefilled(other, other.new_cache(), ids, 48)[-1], whole)


# What is refused.


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({**MIXTRAL, "num_experts_per_tok": 5}, r"num_experts_per_tok = 5 is more than num_local_experts = 4"),
        ({**MIXTRAL, "hidden_act": "gelu"}, r"hidden_act: experts are supported with silu only"),
        ({**MIXTRAL, "intermediate_size": 100}, r"the width of an expert = 100: .* only multiples of 16"),
        ({**MIXTRAL, "hidden_size": 40, "head_dim": 8}, r"hidden_size = 40: .* only multiples of 16"),
        ({**MIXTRAL, "num_local_experts": 0}, r"num_local_experts: must be positive"),
        ({**MIXTRAL, "shared_expert_intermediate_size": 32}, r"shared_expert_intermediate_size = 32: not understood"),
        ({**QWEN, "mlp_only_layers": [1]}, r"mlp_only_layers = \[1\], .*some layers have experts and some have none"),
        ({**QWEN, "decoder_sparse_step": 2}, r"decoder_sparse_step = 2: some layers have experts and some have none"),
        ({**CASES["olmoe"], "clip_qkv": 8.0}, r"clip_qkv = 8.0: .*after their norms"),
        ({**CASES["granitemoe"], "position_embedding_type": "nope"}, r"position_embedding_type = 'nope'"),
    ],
)
def test_configs_that_cannot_be_exported_are_refused(config: dict[str, Any], reason: str) -> None:
    config = COMMON | config
    with pytest.raises(UnsupportedModelError, match=reason):
        find_architecture(config, FAMILIES).read_config(config)


def altered(mixtral: Subject, folder: Path, rename: Callable[[str], str | None]) -> Path:
    """The checkpoint with its tensors renamed, those renamed to None left out."""
    tensors = {name: tensor.read() for name, tensor in open_safetensors(mixtral.folder / "model.safetensors").items()}
    renamed = {rename(name): array for name, array in tensors.items()}
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {name: array for name, array in renamed.items() if name})
    config: dict[str, Any] = json.loads((mixtral.folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def test_a_missing_expert_is_named(mixtral: Subject, tmp_path: Path) -> None:
    gone = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    folder = altered(mixtral, tmp_path / "checkpoint", lambda name: None if name == gone else name)
    with pytest.raises(TensorError) as error:
        export_to(folder, tmp_path / "bundle")
    assert "layers.1.block_sparse_moe.experts.2.w3.weight: missing, shape [96, 64] expected" in str(error.value)
    assert str(error.value).count("missing") == 1


def test_experts_called_otherwise_are_named_once_per_matrix(mixtral: Subject, tmp_path: Path) -> None:
    folder = altered(mixtral, tmp_path / "checkpoint", lambda name: name.replace(".w1.", ".gate_proj."))
    with pytest.raises(TensorError) as error:
        export_to(folder, tmp_path / "bundle")
    experts = "layers.0.block_sparse_moe.experts"
    assert f"{experts}.0.w1.weight to {experts}.3.w1.weight: missing, shape [96, 64] expected" in str(error.value)
    assert f"{experts}.3.gate_proj.weight: not a tensor of this architecture" in str(error.value)
    assert str(error.value).count("missing") == 2
