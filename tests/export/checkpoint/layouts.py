"""Checkpoint folders as they are found in the world, small and random: GPT-2 in every layout to be read, Llama and its
likenesses."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Layout = Literal["original", "trainer", "untied", "tied_with_head"]
Arrays = dict[str, NDArray[Any]]

# dtype name → safetensors' name
_FORMATS = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint32": "U32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int8": "I8",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
# What lies beside the weights, and must be neither fetched nor opened.
ORIGINAL_COMPANY = (
    "pytorch_model.bin",
    "tf_model.h5",
    "flax_model.msgpack",
    "rust_model.ot",
    "64.tflite",
    "onnx/decoder_model.onnx",
)
TRAINER_COMPANY = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, ``"bfloat16"`` among them."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """A safetensors file as the PyTorch writer leaves it: tensors in order, header padded to 8 bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": _FORMATS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    return path


def write_sharded(folder: Path, tensors: Arrays, shards: int) -> Path:
    """``model.safetensors``, or as many shards of about equal size and their index."""
    if shards == 1:
        return write_safetensors(folder / "model.safetensors", tensors)
    total = sum(array.nbytes for array in tensors.values())
    groups: list[Arrays] = [{} for _ in range(shards)]
    at = 0
    for name, array in tensors.items():
        groups[min(shards - 1, at * shards // total)][name] = array
        at += array.nbytes
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        shard = f"model-{number:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / shard, group)
        weight_map |= dict.fromkeys(group, shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2), newline="\n")
    return index


def gpt2_tensors(
    *,
    n_layer: int = 2,
    n_embd: int = 64,
    vocab_size: int = 96,
    n_positions: int = 64,
    seed: int = 0,
) -> Arrays:
    """Random float32 weights of GPT-2 by their bare names; none is trivial, so each matters to the logits.

    Conv1D weights are ``[in, out]``.
    """
    rng = np.random.default_rng(seed)

    def normal(*shape: int, std: float, mean: float = 0.0) -> NDArray[np.float32]:
        return (mean + std * rng.standard_normal(shape)).astype(np.float32)

    tensors: Arrays = {
        "wte.weight": normal(vocab_size, n_embd, std=0.1),
        "wpe.weight": normal(n_positions, n_embd, std=0.05),
    }
    depth = (2 * n_layer) ** -0.5
    for i in range(n_layer):
        for norm in ("ln_1", "ln_2"):
            tensors[f"h.{i}.{norm}.weight"] = normal(n_embd, std=0.1, mean=1.0)
            tensors[f"h.{i}.{norm}.bias"] = normal(n_embd, std=0.05)
        for name, fan_in, fan_out, scale in (
            ("attn.c_attn", n_embd, 3 * n_embd, 1.0),
            ("attn.c_proj", n_embd, n_embd, depth),
            ("mlp.c_fc", n_embd, 4 * n_embd, 1.0),
            ("mlp.c_proj", 4 * n_embd, n_embd, depth),
        ):
            tensors[f"h.{i}.{name}.weight"] = normal(fan_in, fan_out, std=scale * fan_in**-0.5)
            tensors[f"h.{i}.{name}.bias"] = normal(fan_out, std=0.05)
    tensors["ln_f.weight"] = normal(n_embd, std=0.1, mean=1.0)
    tensors["ln_f.bias"] = normal(n_embd, std=0.05)
    return tensors


def write_gpt2(
    folder: Path,
    *,
    layout: Layout,
    n_layer: int = 2,
    n_embd: int = 64,
    n_head: int = 4,
    vocab_size: int = 96,
    n_positions: int = 64,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
    tokenizer: Path | None = None,
) -> Path:
    """A GPT-2 checkpoint in ``folder``, which is returned.

    - ``original``: as the ``gpt2`` repository. No ``transformer.`` prefix, causal masks as float32
      ``attn.bias`` ``[1, 1, n_positions, n_positions]``, no head; files of other frameworks beside.
    - ``trainer``: as ``Trainer`` saves. Prefixed, tied, no head; the trainer's state beside.
    - ``untied``: prefixed, ``tie_word_embeddings`` false and a ``lm_head.weight`` of its own.
    - ``tied_with_head``: as old fine-tunes. Prefixed, an equal ``lm_head.weight`` stored too, masks as bytes,
      and the 0-d ``attn.masked_bias``.

    ``dtype`` is that of the weights; equal seeds give equal weights in every layout. ``tokenizer`` is a
    ``tokenizer.json`` or a folder with one, copied as it is. The last id of the vocabulary ends a text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bare = gpt2_tensors(n_layer=n_layer, n_embd=n_embd, vocab_size=vocab_size, n_positions=n_positions, seed=seed)
    bare = {name: array.astype(numpy_dtype(dtype)) for name, array in bare.items()}
    prefix = "" if layout == "original" else "transformer."
    tensors = {prefix + name: array for name, array in bare.items()}
    mask = np.tril(np.ones((1, 1, n_positions, n_positions), np.uint8))
    for i in range(n_layer):
        if layout == "original":
            tensors[f"h.{i}.attn.bias"] = mask.astype(np.float32)
        elif layout == "tied_with_head":
            tensors[f"transformer.h.{i}.attn.bias"] = mask
            tensors[f"transformer.h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    if layout == "untied":
        other = np.random.default_rng(seed + 1).standard_normal((vocab_size, n_embd)) * 0.1
        tensors["lm_head.weight"] = other.astype(numpy_dtype(dtype))
    elif layout == "tied_with_head":
        tensors["lm_head.weight"] = bare["wte.weight"].copy()
    write_sharded(folder, dict(sorted(tensors.items())), shards)

    last = vocab_size - 1
    config: dict[str, object] = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": last,
        "embd_pdrop": 0.1,
        "eos_token_id": last,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": n_positions,
        "n_embd": n_embd,
        "n_head": n_head,
        "n_layer": n_layer,
        "n_positions": n_positions,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "vocab_size": vocab_size,
    }
    generation: dict[str, object] = {"_from_model_config": True, "bos_token_id": last, "eos_token_id": last}
    if layout == "original":
        config["task_specific_params"] = {"text-generation": {"do_sample": True, "max_length": 50}}
    else:
        config |= {"n_inner": None, "scale_attn_weights": True, "torch_dtype": dtype, "use_cache": True}
        config |= {"reorder_and_upcast_attn": False, "scale_attn_by_inverse_layer_idx": False}
        config["transformers_version"] = generation["transformers_version"] = "4.57.6"
    if layout == "untied":
        config["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", newline="\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", newline="\n")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n\n# A random GPT-2\n", newline="\n")
    _write_company(folder, layout)
    if tokenizer is not None:
        _copy_tokenizer(tokenizer, folder)
    return folder


def llama_tensors(
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 96,
    vocab_size: int = 96,
    tied: bool = False,
    qk_norm: bool = False,
    bias: bool = False,
    seed: int = 0,
) -> Arrays:
    """Random float32 weights of Llama by their names; ``qk_norm`` as Qwen 3 has it, ``bias`` as Qwen 2."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (columns**-0.5 * rng.standard_normal((rows, columns))).astype(np.float32)

    def norm(width: int) -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(width)).astype(np.float32)

    tensors: Arrays = {"model.embed_tokens.weight": matrix(vocab_size, hidden)}
    for i in range(layers):
        attn, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        for x, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            tensors[f"{attn}.{x}_proj.weight"] = matrix(rows * head_dim, hidden)
            if bias:
                tensors[f"{attn}.{x}_proj.bias"] = matrix(1, rows * head_dim)[0]
        tensors[f"{attn}.o_proj.weight"] = matrix(hidden, heads * head_dim)
        if qk_norm:
            tensors |= {f"{attn}.{x}_norm.weight": norm(head_dim) for x in "qk"}
        tensors |= {f"{mlp}.{x}_proj.weight": matrix(intermediate, hidden) for x in ("gate", "up")}
        tensors[f"{mlp}.down_proj.weight"] = matrix(hidden, intermediate)
        tensors |= {f"model.layers.{i}.{x}_layernorm.weight": norm(hidden) for x in ("input", "post_attention")}
    tensors["model.norm.weight"] = norm(hidden)
    if not tied:
        tensors["lm_head.weight"] = matrix(vocab_size, hidden)
    return tensors


def write_llama(folder: Path, *, model_type: str = "llama", shards: int = 1, seed: int = 0, **config: Any) -> Path:
    """A Llama checkpoint in ``folder``, which is returned, or one of its likenesses: ``qwen2`` with biases, ``qwen3``
    with norms on queries and keys. ``config``: keys of ``config.json``, sizes among them."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "architectures": [f"{model_type.capitalize()}ForCausalLM"],
        "model_type": model_type,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 96,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": 95,
        **config,
    }
    tensors = llama_tensors(
        layers=content["num_hidden_layers"],
        hidden=content["hidden_size"],
        heads=content["num_attention_heads"],
        kv_heads=content["num_key_value_heads"],
        head_dim=content["head_dim"],
        intermediate=content["intermediate_size"],
        vocab_size=content["vocab_size"],
        tied=content["tie_word_embeddings"],
        qk_norm=model_type == "qwen3",
        bias=model_type == "qwen2",
        seed=seed,
    )
    write_sharded(folder, dict(sorted(tensors.items())), shards)
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", newline="\n")
    return folder


def _write_company(folder: Path, layout: Layout) -> None:
    """The files beside the weights; none of them can be opened as what its name says."""
    company = {"original": ORIGINAL_COMPANY, "trainer": TRAINER_COMPANY}.get(layout, ())
    for name in company:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"must not be opened")
    if layout == "trainer":
        (folder / "trainer_state.json").write_text('{"global_step": 500}\n', newline="\n")


def _copy_tokenizer(tokenizer: Path, folder: Path) -> None:
    if tokenizer.is_file():
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
        return
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)
