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
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, LlamaFileType, TokenType, get_tensor_name_map
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

Floats = NDArray[np.float32]
Config = Mapping[str, Any]

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
    for name, tensor in sorted(load_file(checkpoint / "model.safetensors").items()):
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


def quantize(floats: Path, target: Path, kind: str) -> None:
    """Have llama.cpp quantize a file of floats; ``kind`` as its own tool calls it: ``Q4_0``, ``Q4_K_M``."""
    api: Any = importlib.import_module("llama_cpp")
    params = api.llama_model_quantize_default_params()
    params.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}")
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


def _as_computed(name: str, values: Floats, config: Config) -> Floats:
    """Rates and norms as they multiply, kernels without the axis of their one channel."""
    if name.endswith(".A_log"):
        return -np.exp(values)
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return values + 1
    return values[:, 0] if name.endswith("conv1d.weight") else values


def _as_it_is(name: str, values: Floats, config: Config) -> Floats:
    return values


LAYOUTS: dict[str, Layout] = {
    "gpt2": Layout(MODEL_ARCH.GPT2, "gpt-2", _gpt2, _outputs_first),
    "gpt_neox": Layout(MODEL_ARCH.GPTNEOX, "gpt-2", _gpt_neox, _queries_first),
    "llama": Layout(MODEL_ARCH.LLAMA, "default", _llama, _pairs_together),
    "qwen2": Layout(MODEL_ARCH.QWEN2, "qwen2", _llama, _as_it_is),
    "lfm2": Layout(MODEL_ARCH.LFM2, "lfm2", _lfm2, _taps_together),
    "qwen3_5_text": Layout(MODEL_ARCH.QWEN35, "qwen2", _qwen3_5, _as_computed),
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
    running = verbs.add_parser("logits")
    running.add_argument("model", type=Path)
    running.add_argument("ids", type=Path)
    running.add_argument("logits", type=Path)
    running.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    if args.verb == "quantize":
        quantize(args.floats, args.target, args.kind)
    else:
        np.save(args.logits, logits(args.model, np.load(args.ids), args.threads))


if __name__ == "__main__":
    main()
