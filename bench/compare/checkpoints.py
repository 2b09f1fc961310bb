"""Random-weight checkpoints for benchmarks: GPT-2 in the layout of the `gpt2` repository, or another shape.

    python -m bench.compare.checkpoints FOLDER          # GPT-2 small: 124M parameters, 0.5 GB

Speed depends on shapes, not on trained weights, so a benchmark needs no download. The weights follow each family's
own initialization, except that biases and norms are random too: a conversion that drops or swaps one then shows in
the logits.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod, sqrt
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

END_OF_TEXT = "<|endoftext|>"

SPREADS = {
    "mixer.conv1d.weight": (0.0, 0.3),
    "mixer.x_proj.weight": (0.0, 0.05),
    "mixer.dt_proj.bias": (-4.0, 1.0),
    "mixer.A_log": (1.0, 0.8),
    "mixer.D": (1.0, 0.2),
    "mixer.out_proj.weight": (0.0, 0.003),
}
"""Mean and standard deviation of a Mamba's tensors, by the end of their name: with those of the others its states would
hardly count."""


class Sizes(Protocol):
    """The sizes that a checkpoint is written from."""

    @property
    def layers(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def tokenizer_class(self) -> str: ...
    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read."""
        ...

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the layout of the family's repositories."""
        ...

    def config(self) -> dict[str, Any]:
        """Return the keys of `config.json` beside the names of the special tokens."""
        ...


@dataclass(frozen=True)
class Shape:
    """The sizes of a GPT-2; the defaults are GPT-2 small."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocab: int = 50257
    context: int = 1024

    @classmethod
    def read(cls, folder: Path) -> "Shape":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = ("n_layer", "n_embd", "n_head", "vocab_size", "n_positions")
        return cls(*(int(config[name]) for name in names))

    @property
    def weights_per_token(self) -> int:
        """Matrix weights that one decode step has to read: 12 width² per layer and the tied head."""
        return 12 * self.layers * self.width**2 + self.vocab * self.width

    @property
    def tokenizer_class(self) -> str:
        return "GPT2Tokenizer"

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the original layout: no `transformer.` prefix, Conv1D matrices [in, out]."""
        w = self.width
        yield "wte.weight", (self.vocab, w)
        yield "wpe.weight", (self.context, w)
        for i in range(self.layers):
            for norm in ("ln_1", "ln_2"):
                yield f"h.{i}.{norm}.weight", (w,)
                yield f"h.{i}.{norm}.bias", (w,)
            for matrix, d_in, d_out in (
                ("attn.c_attn", w, 3 * w),
                ("attn.c_proj", w, w),
                ("mlp.c_fc", w, 4 * w),
                ("mlp.c_proj", 4 * w, w),
            ):
                yield f"h.{i}.{matrix}.weight", (d_in, d_out)
                yield f"h.{i}.{matrix}.bias", (d_out,)
        yield "ln_f.weight", (w,)
        yield "ln_f.bias", (w,)

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "n_layer": self.layers,
            "n_embd": self.width,
            "n_head": self.heads,
            "n_positions": self.context,
            "n_ctx": self.context,
        }


def write_checkpoint(folder: Path, shape: Sizes = Shape(), *, seed: int = 0, tokenizer: Path | None = None) -> None:
    """Write config, weights and tokenizer; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for name, dims in shape.tensors():
        std = 0.02 / sqrt(2 * shape.layers) if name.endswith("c_proj.weight") else 0.02
        mean = 1.0 if len(dims) == 1 and name.endswith("weight") else 0.0
        mean, std = next((spread for end, spread in SPREADS.items() if name.endswith(end)), (mean, std))
        values = rng.standard_normal(prod(dims), dtype=np.float32).reshape(dims) * np.float32(std)
        tensors[name] = values + np.float32(mean) if mean else values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    _write_json(folder / "config.json", _config(shape))
    _write_json(folder / "generation_config.json", {"bos_token_id": shape.vocab - 1, "eos_token_id": shape.vocab - 1})
    if tokenizer is not None:
        shutil.copyfile(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    else:
        _write_json(folder / "tokenizer.json", _tokenizer(shape.vocab))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": shape.tokenizer_class,
            "bos_token": END_OF_TEXT,
            "eos_token": END_OF_TEXT,
            "unk_token": END_OF_TEXT,
            "model_max_length": shape.context,
        },
    )


def _config(shape: Sizes) -> dict[str, Any]:
    return {
        **shape.config(),
        "vocab_size": shape.vocab,
        "bos_token_id": shape.vocab - 1,
        "eos_token_id": shape.vocab - 1,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }


def _tokenizer(vocab: int) -> dict[str, object]:
    """A byte-level BPE of exactly `vocab` tokens: 256 bytes, made-up lower-case words, end of text.

    The words are all strings of two letters, then of three, then of four (`Ġ` is the space before a word), so
    each is one merge of a shorter one with a letter.
    """
    letters = ["Ġ", *ascii_lowercase]
    words = ("".join(w) for n in (2, 3, 4) for w in product(letters, *[ascii_lowercase] * (n - 1)))
    tokens = byte_alphabet()
    merges: list[list[str]] = []
    for word in words:
        if len(tokens) == vocab - 1:
            break
        tokens.append(word)
        merges.append([word[:-1], word[-1]])
    if len(tokens) != vocab - 1:
        raise ValueError(f"a made-up vocabulary has between 257 and {len(tokens) + 1} tokens, not {vocab}")
    end = {
        "id": vocab - 1,
        "content": END_OF_TEXT,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate([*tokens, END_OF_TEXT])},
            "merges": merges,
        },
    }


def byte_alphabet() -> list[str]:
    """GPT-2's 256 printable stand-ins for bytes, in its order: printable bytes first, then the others."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random-weight GPT-2 checkpoint.")
    parser.add_argument("folder", type=Path)
    default = Shape()
    for name in ("layers", "width", "heads", "vocab", "context"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path, help="take tokenizer.json from this folder")
    args = parser.parse_args()
    shape = Shape(args.layers, args.width, args.heads, args.vocab, args.context)
    write_checkpoint(args.folder, shape, seed=args.seed, tokenizer=args.tokenizer)


if __name__ == "__main__":
    main()
