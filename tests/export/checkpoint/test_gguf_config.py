"""The configuration in a GGUF file's metadata: what is asked for, what is refused, and how positions are scaled."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import MODEL_ARCH_NAMES

from edgegen.errors import CheckpointError, UnsupportedModelError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.gguf.architectures import ARCHITECTURES
from tests.export.checkpoint.gguf_bytes import LLAMA_METADATA, Raw, gguf_bytes, write_llama


def opened(path: Path, tensors: list[Raw] | None = None, data: bytes = b"", **changes: Any) -> Checkpoint:
    return Checkpoint.open(str(write_llama(path / "x.gguf", tensors or [], data, **changes)))


def refusal(path: Path, tensors: list[Raw] | None = None, data: bytes = b"", **changes: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        opened(path, tensors, data, **changes)
    return str(caught.value)


def factors(*values: float) -> tuple[list[Raw], bytes]:
    return [Raw("rope_freqs.weight", (len(values),))], np.array(values, "<f4").tobytes()


def test_gguf_config_values_and_defaults(tmp_path: Path) -> None:
    assert opened(tmp_path).config == {
        "model_type": "llama",
        "vocab_size": 3,
        "tie_word_embeddings": True,
        "max_position_embeddings": 16,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "intermediate_size": 12,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("qwem2", r" \(did you mean 'qwen2'\?\)"),
        ("cohere2moe", r" \(did you mean 'cohere2'\?\)"),  # these are of releases after the one that tests install
        ("gemma4-assistant", r" \(did you mean 'gemma4'\?\)"),
        ("GPT-OSS", r" \(did you mean 'gpt-oss'\?\)"),
        ("talkie", ""),
        ("", ""),
        ("ta\nlkie", ""),
        ("x" * 1000, ""),
    ],
)
def test_unknown_architectures_are_refused_by_name(tmp_path: Path, name: str, near: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": name}, [Raw("a", (4,))], bytes(16)))
    shown = re.escape(repr(name[:60]))
    with pytest.raises(
        UnsupportedModelError, match=rf"^\S+: general.architecture {shown} is not supported{near}; "
    ) as caught:
        Checkpoint.open(str(path))
    message = str(caught.value)
    assert message.endswith(f"; supported: {', '.join(sorted(ARCHITECTURES))}")
    assert "\n" not in message
    assert name not in MODEL_ARCH_NAMES.values()


def test_every_architecture_of_the_library_is_read_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for name in set(MODEL_ARCH_NAMES.values()) - ARCHITECTURES.keys() - {"clip"}:
        path.write_bytes(gguf_bytes({"general.architecture": name}, [Raw("a", (4,))], bytes(16)))
        with pytest.raises(UnsupportedModelError, match=rf"general.architecture '{name}' is not supported"):
            Checkpoint.open(str(path))


@pytest.mark.parametrize("said", [{"general.type": "mmproj"}, {}])
def test_a_tower_is_not_the_language_model(tmp_path: Path, said: dict[str, str]) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "clip", **said}, [Raw("a", (4,))], bytes(16)))
    with pytest.raises(
        CheckpointError, match=r"a tower for pictures or sound, not a language model: that is in a file"
    ):
        Checkpoint.open(str(path))


def test_all_that_is_missing_or_wrong_is_listed(tmp_path: Path) -> None:
    message = refusal(
        tmp_path,
        llama__context_length=None,
        llama__block_count="one",
        llama__embedding_length=0,
        llama__attention__head_count=[2, 3],
        llama__attention__layer_norm_rms_epsilon=None,
        llama__expert_count=8,
        llama__attention__causal=False,
        llama__attention__sliding_windw=7,
        llama__rope__dimension_count=2,
    )
    for said in (
        "llama.context_length: missing",
        "llama.block_count: a whole number expected, found 'one'",
        "llama.embedding_length: 0 is not at least 1",
        "llama.attention.head_count: differs from layer to layer",
        "llama.attention.layer_norm_rms_epsilon: missing",
        "llama.expert_count = 8: experts are not known of this architecture",
        "llama.attention.causal = False: only causal models generate text",
        "llama.attention.sliding_windw = 7: not understood, and it may change the result",
        "llama.rope.dimension_count = 2: only whole heads can be rotated",
    ):
        assert said in message
    assert message.count("\n  - ") == 9


def test_an_embedding_is_required(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "llama"}, [Raw("a", (4,))], bytes(16)))
    with pytest.raises(CheckpointError, match=r"tensor token_embd\.weight: missing"):
        Checkpoint.open(str(path))


def test_heads_are_checked(tmp_path: Path) -> None:
    assert opened(tmp_path, llama__attention__head_count=[2]).config["num_attention_heads"] == 2
    assert opened(tmp_path, llama__attention__key_length=16).config["head_dim"] == 16
    assert "not a multiple of 3" in refusal(tmp_path, llama__attention__head_count_kv=3)
    assert "as wide as keys" in refusal(tmp_path, llama__attention__value_length=6)


def test_ends_of_turns_end_a_text_too(tmp_path: Path) -> None:
    config = opened(tmp_path, tokenizer__ggml__eot_token_id=7, tokenizer__ggml__eom_token_id=2).config
    assert config["eos_token_id"] == [2, 7]
    message = refusal(tmp_path, tokenizer__ggml__eot_token_id=[7], tokenizer__ggml__bos_token_id="x")
    assert "tokenizer.ggml.eot_token_id is [7]" in message
    assert "tokenizer.ggml.bos_token_id is 'x'" in message
    assert "eos_token_id" not in opened(tmp_path, tokenizer__ggml__eos_token_id=None).config


@pytest.mark.parametrize(
    ("tokens", "kinds", "ends"),
    [
        (["<|endoftext|>", "a", "<|im_end|>"], [3, 1, 3], [2, 0]),
        (["<|endoftext|>", "a", "<|im_end|>"], [1, 1, 3], 2),  # a word like any other
        (["<|end|>", "a", "<|return|>", "<|call|>"], [3, 1, 3, 3], [2, 3]),  # <|end|> ends a part of an answer
        (["<|end|>", "a", "b"], [3, 1, 3], [2, 0]),
    ],
)
def test_control_tokens_end_a_text_as_in_llama_cpp(
    tmp_path: Path, tokens: list[str], kinds: list[int], ends: int | list[int]
) -> None:
    """Files name one end, where generation configs have several."""
    config = opened(tmp_path, tokenizer__ggml__tokens=tokens, tokenizer__ggml__token_type=kinds).config
    assert config["eos_token_id"] == ends


def test_a_head_that_copies_the_embedding_is_tied(tmp_path: Path) -> None:
    head = [Raw("output.weight", (8, 3))]
    copy = np.arange(24, dtype="<f4")
    tied = opened(tmp_path, head, copy.tobytes())
    assert tied.config["tie_word_embeddings"]
    assert "lm_head.weight" not in tied.tensors
    own = opened(tmp_path, head, (copy + 1).tobytes())
    assert not own.config["tie_word_embeddings"]
    np.testing.assert_array_equal(own.tensors["lm_head.weight"].read().ravel(), copy + 1)


def test_tensors_that_are_not_of_the_architecture_or_do_not_fit(tmp_path: Path) -> None:
    tensors = [Raw("blk.0.attn_qq.weight", (4,)), Raw("blk.0.attn_q.scale", (4,), offset=32)]
    tensors += [Raw("blk.0.attn_k.weight", (8, 3), offset=64)]
    message = refusal(tmp_path, tensors, bytes(160))
    assert "blk.0.attn_qq.weight: not a tensor of llama (did you mean 'blk.{i}.attn_q'?)" in message
    assert "blk.0.attn_q.scale: not a tensor of llama" in message
    assert "blk.0.attn_k.weight: shape [3, 8] does not fit the metadata" in message


def test_a_tensor_is_not_made_twice(tmp_path: Path) -> None:
    metadata = {key.replace("llama", "phi2"): value for key, value in LLAMA_METADATA.items()}
    metadata |= {"general.architecture": "phi2", "phi2.attention.layer_norm_epsilon": 1e-5}
    tensors = [Raw("token_embd.weight", (8, 3)), Raw("blk.0.attn_qkv.weight", (8, 24), offset=96)]
    tensors += [Raw("blk.0.attn_k.weight", (8, 8), offset=864)]
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors, bytes(1120)))
    with pytest.raises(CheckpointError, match=r"k_proj\.weight is made of blk\.0\.attn_qkv\.weight already"):
        Checkpoint.open(str(path))


def test_what_changes_nothing_is_no_problem(tmp_path: Path) -> None:
    opened(
        tmp_path, llama__attention__sliding_window=0, llama__expert_count=0, llama__attention__layer_norm_epsilon=0.5
    )
    assert "sliding_window = 8: sliding windows are not known" in refusal(tmp_path, llama__attention__sliding_window=8)
    assert "freq_base: a number expected, found inf" in refusal(tmp_path, llama__rope__freq_base=float("inf"))


def test_linear_scaling(tmp_path: Path) -> None:
    new = opened(tmp_path, llama__rope__scaling__type="linear", llama__rope__scaling__factor=2.0).config
    old = opened(tmp_path, llama__rope__scale_linear=2.0).config
    assert new["rope_scaling"] == old["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    for said in ({"type": "none", "factor": 2.0}, {"type": "linear", "factor": 1.0}, {"type": "none"}):
        keys: dict[str, Any] = {f"llama__rope__scaling__{key}": value for key, value in said.items()}
        config = opened(tmp_path, **keys).config
        assert "rope_scaling" not in config


def test_yarn_with_all_its_settings(tmp_path: Path) -> None:
    said: dict[str, Any] = {"type": "yarn", "factor": 4.0, "original_context_length": 8, "yarn_attn_factor": 1.5}
    said |= {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0, "yarn_ext_factor": 1.0}
    keys: dict[str, Any] = {f"llama__rope__scaling__{key}": value for key, value in said.items()}
    assert opened(tmp_path, **keys).config["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "attention_factor": 1.5,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    }
    keys |= {"llama__rope__scaling__yarn_ext_factor": 0.5, "llama__rope__scaling__yarn_log_multiplier": 0.1}
    message = refusal(tmp_path, **keys)
    assert "yarn_ext_factor = 0.5: only the usual extrapolation" in message
    assert "yarn_log_multiplier = 0.1: not understood" in message


def test_factors_that_are_not_llama_3s_are_kept_as_they_are(tmp_path: Path) -> None:
    config = opened(tmp_path, *factors(1.0, 3.5), llama__rope__freq_base=500000.0).config
    assert config["rope_scaling"] == {
        "rope_type": "longrope",
        "short_factor": [1.0, 3.5],
        "long_factor": [1.0, 3.5],
        "attention_factor": 1.0,
        "original_max_position_embeddings": 16,
    }
    assert "rope_scaling" not in opened(tmp_path, *factors(1.0, 1.0)).config


def test_scalings_that_cannot_be(tmp_path: Path) -> None:
    assert "longrope': this scaling is not known, or its factors are missing" in refusal(
        tmp_path, llama__rope__scaling__type="longrope"
    )
    assert "attn_factor = 1.5: attention is scaled so with long rotary factors only" in refusal(
        tmp_path, llama__rope__scaling__attn_factor=1.5
    )
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        assert "rope_freqs.weight: factors must be finite and positive" in refusal(tmp_path, *factors(1.0, bad))


def arch(tmp_path: Path, name: str, **changes: Any) -> Checkpoint:
    """The same small file under another architecture's name."""
    keys = {key.replace("llama__", f"{name}__"): value for key, value in changes.items()}
    own = {f"llama.{key}": None for key in ("context_length", "embedding_length", "block_count", "feed_forward_length")}
    own |= {f"llama.attention.{key}": None for key in ("head_count", "layer_norm_rms_epsilon")}
    sizes = {"context_length": 16, "embedding_length": 8, "block_count": 3, "feed_forward_length": 32}
    theirs = {f"{name}.{key}": value for key, value in sizes.items()}
    theirs |= {f"{name}.attention.head_count": 2, f"{name}.attention.layer_norm_rms_epsilon": 1e-6}
    path = write_llama(tmp_path / "x.gguf", **{"general.architecture": name}, **own, **theirs, **keys)
    return Checkpoint.open(str(path))


def test_sliding_layers_follow_the_pattern(tmp_path: Path) -> None:
    sliding, full = "sliding_attention", "full_attention"
    assert arch(tmp_path, "gemma2").config["layer_types"] == [sliding, full, sliding]
    assert arch(tmp_path, "gemma2").config["sliding_window"] == 4096
    window = {"llama__attention__sliding_window": 4}
    assert arch(tmp_path, "gemma3", **window).config["layer_types"] == [sliding] * 3
    pattern = {"llama__attention__sliding_window_pattern": [False, True, False]}
    assert arch(tmp_path, "gemma3", **window, **pattern).config["layer_types"] == [full, sliding, full]
    with pytest.raises(CheckpointError, match=r"3 flags expected, found \[True\]") as caught:
        arch(tmp_path, "gemma3", llama__attention__sliding_window_pattern=[True])
    assert "gemma3.attention.sliding_window: missing" in str(caught.value)


def test_only_the_largest_gemmas_scale_attention_by_the_width(tmp_path: Path) -> None:
    key = "query_pre_attn_scalar"
    wide = {"llama__attention__key_length": 16, "llama__attention__value_length": 16}
    assert arch(tmp_path, "gemma2", **wide).config[key] == 16
    assert arch(tmp_path, "gemma2", **wide, llama__block_count=46).config[key] == 4
    assert arch(tmp_path, "gemma3", **wide, llama__block_count=62, llama__attention__sliding_window=4).config[key] == 4


def test_granite_without_rotary_positions_is_refused(tmp_path: Path) -> None:
    said = {"llama__logit_scale": 8.0, "llama__rope__scaling__finetuned": False}
    with pytest.raises(CheckpointError, match="attention without rotary positions"):
        arch(tmp_path, "granite", **said)
    config = arch(tmp_path, "granite", llama__logit_scale=8.0).config
    assert (config["attention_multiplier"], config["residual_multiplier"]) == (0.5, 1.0)


def test_a_float_is_the_number_that_was_meant(tmp_path: Path) -> None:
    assert opened(tmp_path, llama__rope__freq_base=1e6).config["rope_theta"] == 1e6
    assert opened(tmp_path, llama__attention__layer_norm_rms_epsilon=1e-6).config["rms_norm_eps"] == 1e-6


def test_exaones_epsilon_stands_under_either_key(tmp_path: Path) -> None:
    rms, other = "llama__attention__layer_norm_rms_epsilon", "llama__attention__layer_norm_epsilon"
    assert arch(tmp_path, "exaone", **{rms: 1e-6}).config["rms_norm_eps"] == 1e-6
    assert arch(tmp_path, "exaone", **{rms: None, other: 1e-6}).config["rms_norm_eps"] == 1e-6
    with pytest.raises(CheckpointError, match=r"exaone.attention.layer_norm_rms_epsilon: missing"):
        arch(tmp_path, "exaone", **{rms: None, other: None})


def test_gptj_has_one_theta(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"llama__attention__layer_norm_epsilon": 1e-5}
    assert arch(tmp_path, "gptj", **usual).config["rotary_dim"] == 4
    assert arch(tmp_path, "gptj", **usual, llama__rope__dimension_count=2).config["rotary_dim"] == 2
    with pytest.raises(
        CheckpointError, match=r"gptj.rope.freq_base = 500.0: this architecture has no other than 10000"
    ):
        arch(tmp_path, "gptj", **usual, llama__rope__freq_base=500.0)


def test_sections_of_positions_are_whole_numbers(tmp_path: Path) -> None:
    for wrong in ("x", [0.5, 0.5], 1.5):
        with pytest.raises(CheckpointError, match=r"glm4.rope.dimension_sections: whole numbers expected, found "):
            arch(tmp_path, "glm4", llama__rope__dimension_sections=wrong)
    for right in ([0, 0, 0, 0], [1, 1, 0, 0], 1):
        assert arch(tmp_path, "glm4", llama__rope__dimension_sections=right).config["model_type"] == "glm4"
