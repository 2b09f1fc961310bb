"""GGUF files of checkpoints: written in float32, quantized and run by llama.cpp.

    python -m bench.gguf.gguf_file quantize FLOATS.gguf TARGET.gguf Q4_K_M
    python -m bench.gguf.gguf_file logits MODEL.gguf IDS.npy LOGITS.npy --threads 2

Writing takes the packages `gguf` and `safetensors`, the rest `llama-cpp-python`: none of edgegen's, since it also
runs in an environment without them. Names come from the `gguf` package; tensors are rearranged as in llama.cpp's own
converter (`convert_hf_to_gguf.py`).
"""

import argparse
import ctypes
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    ExpertGatingFuncType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

Floats = NDArray[np.float32]
Config = Mapping[str, Any]

BF16 = 30
"""bfloat16, as ggml numbers it."""
MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")
"""Buffers that old checkpoints carry along."""


@dataclass(frozen=True)
class Layout:
    """How the checkpoints of a family become GGUF files."""

    arch: MODEL_ARCH
    pre_tokenizer: str
    describe: Callable[[GGUFWriter, Config], None]
    rearrange: Callable[[str, Floats, Config], Floats]
    """Of a tensor by its name in the checkpoint."""
    gather: Callable[[dict[str, Floats], Config], dict[str, Floats]] = lambda tensors, config: tensors
    """Tensors that a file has together or apart, by names that have a place in it; done before."""


def write_gguf(checkpoint: Path, target: Path) -> None:
    """Write the checkpoint in the folder ``checkpoint`` (one ``model.safetensors``, a fast tokenizer) in float32."""
    config: Config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    layout = LAYOUTS[config["model_type"]]
    layers = int(config.get("num_hidden_layers") or config["n_layer"])
    writer = GGUFWriter(target, MODEL_ARCH_NAMES[layout.arch])
    writer.add_block_count(layers)
    layout.describe(writer, config)
    writer.add_file_type(LlamaFileType.ALL_F32)
    _add_tokenizer(writer, checkpoint / "tokenizer.json", config, layout.pre_tokenizer)
    names = get_tensor_name_map(layout.arch, layers)
    tied = config.get("tie_word_embeddings", layout.arch == MODEL_ARCH.GPT2)
    for name, tensor in sorted(layout.gather(load_file(checkpoint / "model.safetensors"), config).items()):
        if name.endswith(MASKS) or (tied and name == "lm_head.weight"):
            continue
        stored = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), try_suffixes=(".weight", ".bias"))
        if stored is None:
            raise SystemExit(f"{checkpoint}: no place in a GGUF file for the tensor {name}")
        values = layout.rearrange(name, tensor.astype(np.float32, copy=False), config)
        writer.add_tensor(stored, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(floats: Path, target: Path, kind: str, importance: Mapping[str, Floats] | None = None) -> None:
    """Have llama.cpp quantize a file of floats; ``kind`` as its own tool calls it: ``Q4_0``, ``Q4_K_M``.

    ``importance``: its importance matrix, by tensor the mean square of each column's inputs.
    """
    api: Any = importlib.import_module("llama_cpp")
    params = api.llama_model_quantize_default_params()
    params.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}")
    # As 8 or 4 bits llama.cpp would lay the matrices of heads out for AMX, and then refuse to multiply by them.
    kept = (api.llama_model_tensor_override * 2)((b"attn_[kv]_b\\.weight", BF16))
    params.tt_overrides = kept
    kept_names = [name.encode() for name in importance or ()]
    kept_data = [np.ascontiguousarray(data, np.float32) for data in (importance or {}).values()]
    entries = (api.llama_model_imatrix_data * (len(kept_names) + 1))()  # the last has no name
    for entry, name, data in zip(entries, kept_names, kept_data, strict=False):
        entry.name, entry.size = name, data.size
        entry.data = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    if importance:
        params.imatrix = entries
    if api.llama_model_quantize(str(floats).encode(), str(target).encode(), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp cannot store {floats.name} as {kind}")


def logits(model: Path, windows: NDArray[np.int64], threads: int) -> Floats:
    """Of every position: ids [n, t] → [n, t, vocab]. The cache is float32, so that only the weights differ."""
    api: Any = importlib.import_module("llama_cpp")
    size = windows.shape[1]
    llama = api.Llama(
        model_path=str(model),
        n_ctx=size,
        n_batch=size,
        n_ubatch=size,
        n_threads=threads,
        n_threads_batch=threads,
        type_k=api.GGML_TYPE_F32,
        type_v=api.GGML_TYPE_F32,
        logits_all=True,
        verbose=False,
    )
    result: list[Floats] = []
    for window in windows:
        llama.reset()
        llama.eval(window.tolist())
        result.append(llama.scores[:size].copy())
    return np.array(result)


def _gpt2(writer: GGUFWriter, config: Config) -> None:
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def _sizes(writer: GGUFWriter, config: Config) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rotary_emb_base"])


def _gpt_neox(writer: GGUFWriter, config: Config) -> None:
    _sizes(writer, config)
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_rope_dimension_count(int(config["rotary_pct"] * config["hidden_size"] // config["num_attention_heads"]))
    writer.add_parallel_residual(config["use_parallel_residual"])


def _llama(writer: GGUFWriter, config: Config) -> None:
    _sizes(writer, config)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
    )


def _lfm2(writer: GGUFWriter, config: Config) -> None:
    _sizes(writer, config)
    kv_heads = int(config["num_key_value_heads"])
    writer.add_head_count_kv([kv_heads if kind == "full_attention" else 0 for kind in config["layer_types"]])
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])


def _qwen3_5(writer: GGUFWriter, config: Config) -> None:
    rope: Config = config["rope_parameters"]
    _sizes(writer, {**config, **rope})
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([11, 11, 10, 0])  # of pictures; llama.cpp asks for them
    heads, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    if config["linear_num_key_heads"] != heads:
        raise SystemExit("only gated delta nets with as many heads of keys as of values can be written")
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(heads)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * size)
    writer.add_full_attention_interval(4)


def _routed(writer: GGUFWriter, config: Config, count: str, shared: str) -> None:
    """Write the metadata of experts that are routed as in DeepSeek-V3."""
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(config[count])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if config["n_group"] > 1:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_intermediate_size"] * config[shared])
    writer.add_expert_shared_count(config[shared])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])


def _glm4_moe_lite(writer: GGUFWriter, config: Config) -> None:
    """A key is a latent and what turns, a value the latent; the sizes of those that heads have are said apart."""
    _sizes(writer, config)
    _routed(writer, config, "n_routed_experts", "n_shared_experts")
    latent, turning = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_vocab_size(config["vocab_size"])
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_rope_dimension_count(turning)
    writer.add_head_count_kv(1)
    writer.add_key_length(latent + turning)
    writer.add_value_length(latent)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + turning)
    writer.add_value_length_mla(config["v_head_dim"])


def _bailing_moe(writer: GGUFWriter, config: Config) -> None:
    _sizes(writer, config)
    _routed(writer, config, "num_experts", "num_shared_experts")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))


def _mamba(writer: GGUFWriter, config: Config) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(config["intermediate_size"])
    writer.add_ssm_state_size(config["state_size"])
    writer.add_ssm_time_step_rank(config["time_step_rank"])


def _experts_together(tensors: dict[str, Floats], config: Config) -> dict[str, Floats]:
    """The matrices of a layer's experts on an axis of their own, and the biases of the choice as parameters."""
    found: dict[str, Floats] = {}
    for name in [*tensors]:
        tensor = tensors.pop(name)  # only one copy of the experts is kept
        before, _, after = name.partition(".experts.")
        number, _, matrix = after.partition(".")
        if not after:
            biases = {".e_score_correction_bias": ".e_score_correction.bias", ".expert_bias": ".expert_bias.bias"}
            end = next((end for end in biases if name.endswith(end)), "")
            found[name.removesuffix(end) + biases.get(end, "")] = tensor
            continue
        count = config.get("n_routed_experts") or config["num_experts"]
        together = found.setdefault(f"{before}.experts.{matrix}", np.empty((count, *tensor.shape), np.float32))
        together[int(number)] = tensor
    return found


def _heads_apart(tensors: dict[str, Floats], config: Config) -> dict[str, Floats]:
    """Of latents the matrix of each head's key, transposed, and the matrix of its value."""
    found = _experts_together(tensors, config)
    for name in [name for name in found if ".kv_b_proj." in name]:
        matrix = found.pop(name)
        heads = matrix.reshape(config["num_attention_heads"], -1, matrix.shape[1])
        keys, values = np.split(heads, [config["qk_nope_head_dim"]], axis=1)
        found[name.replace("kv_b_proj", "k_b_proj")] = keys.swapaxes(1, 2)
        found[name.replace("kv_b_proj", "v_b_proj")] = values
    return found


def _outputs_first(name: str, values: Floats, config: Config) -> Floats:
    """Its matrices are [in, out]."""
    matrix = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    return values.T if matrix else values


def _queries_first(name: str, values: Floats, config: Config) -> Floats:
    """Query, key and value of a head stand together; here all queries come first, then all keys."""
    if ".query_key_value." not in name:
        return values
    heads = values.reshape(config["num_attention_heads"], 3, -1, *values.shape[1:])
    return heads.swapaxes(0, 1).reshape(values.shape)


def _pairs_together(name: str, values: Floats, config: Config) -> Floats:
    """The two rows that a rotation turns are half a head apart; here they are neighbours."""
    heads = {".q_proj.": "num_attention_heads", ".k_proj.": "num_key_value_heads"}
    for part, key in heads.items():
        if part in name:
            halves = values.reshape(config[key], 2, -1, *values.shape[1:])
            return halves.swapaxes(1, 2).reshape(values.shape)
    return values


def _taps_together(name: str, values: Floats, config: Config) -> Floats:
    """A convolution's weights are [channels, 1, taps]; here they are [channels, taps]."""
    return values[:, 0] if name.endswith("conv.conv.weight") else values


def _rates(name: str, values: Floats, config: Config) -> Floats:
    """Rates as they multiply, kernels without the axis of their one channel."""
    if name.endswith(".A_log"):
        return -np.exp(values)
    return values[:, 0] if name.endswith("conv1d.weight") else values


def _as_computed(name: str, values: Floats, config: Config) -> Floats:
    """Norms too."""
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return values + 1
    return _rates(name, values, config)


def _as_it_is(name: str, values: Floats, config: Config) -> Floats:
    return values


LAYOUTS: dict[str, Layout] = {
    "gpt2": Layout(MODEL_ARCH.GPT2, "gpt-2", _gpt2, _outputs_first),
    "gpt_neox": Layout(MODEL_ARCH.GPTNEOX, "gpt-2", _gpt_neox, _queries_first),
    "llama": Layout(MODEL_ARCH.LLAMA, "default", _llama, _pairs_together),
    "qwen2": Layout(MODEL_ARCH.QWEN2, "qwen2", _llama, _as_it_is),
    "lfm2": Layout(MODEL_ARCH.LFM2, "lfm2", _lfm2, _taps_together),
    "qwen3_5_text": Layout(MODEL_ARCH.QWEN35, "qwen2", _qwen3_5, _as_computed),
    "glm4_moe_lite": Layout(MODEL_ARCH.DEEPSEEK2, "glm4", _glm4_moe_lite, _as_it_is, _heads_apart),
    "bailing_moe": Layout(MODEL_ARCH.BAILINGMOE2, "bailingmoe2", _bailing_moe, _as_it_is, _experts_together),
    "mamba": Layout(MODEL_ARCH.MAMBA, "gpt-2", _mamba, _rates),
}
"""By ``model_type``."""


def _add_tokenizer(writer: GGUFWriter, path: Path, config: Config, pre_tokenizer: str) -> None:
    """Byte-level BPE, or SentencePiece's where the tokenizer falls back to bytes."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    by_id: dict[int, str] = {i: token for token, i in model["vocab"].items()}
    added: dict[int, str] = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    by_id |= added
    tokens = [by_id.get(i, f"[unused{i}]") for i in range(config["vocab_size"])]
    merges: list[str] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    if model.get("byte_fallback"):
        writer.add_tokenizer_model("llama")
        rank = {merge.replace(" ", ""): i for i, merge in enumerate(merges)}
        writer.add_token_scores([-float(rank.get(token, 0)) for token in tokens])
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre_tokenizer)
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types([_token_type(token, i in added, model) for i, token in enumerate(tokens)])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def _token_type(token: str, added: bool, model: Mapping[str, Any]) -> int:
    if token == model.get("unk_token") and model.get("byte_fallback"):
        return int(TokenType.UNKNOWN)
    if added:
        return int(TokenType.CONTROL)
    if model.get("byte_fallback") and token.startswith("<0x"):
        return int(TokenType.BYTE)
    return int(TokenType.NORMAL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Quantize a GGUF file, or run one over ids.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    quantizing = verbs.add_parser("quantize")
    quantizing.add_argument("floats", type=Path)
    quantizing.add_argument("target", type=Path)
    quantizing.add_argument("kind")
    quantizing.add_argument("--importance", type=Path, help="arrays by tensor, in a .npz")
    running = verbs.add_parser("logits")
    running.add_argument("model", type=Path)
    running.add_argument("ids", type=Path)
    running.add_argument("logits", type=Path)
    running.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    if args.verb == "quantize":
        quantize(args.floats, args.target, args.kind, np.load(args.importance) if args.importance else None)
    else:
        np.save(args.logits, logits(args.model, np.load(args.ids), args.threads))


if __name__ == "__main__":
    main()
