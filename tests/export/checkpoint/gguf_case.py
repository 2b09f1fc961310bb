"""Case: a tiny model of one architecture, as data, and the settings and steps that most of them share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.export.checkpoint.gguf_steps import Describe, Rearrange, kv_heads, llama, rope, sizes

LLAMA = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


LLAMA_STEPS = (sizes, kv_heads, llama, rope)
BIGGER_HEADS = {**LLAMA, "head_dim": 16, "tie_word_embeddings": True}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True, slots=True)
class Case:
    """``arch``: the file's name of the family; ``config`` and ``cls``: what transformers makes the model of.

    ``not_said``: keys of the configuration that no GGUF file has, and that nothing in inference reads.
    ``loader``: whether transformers' own GGUF loader reads such a file rightly. ``named_like``: an architecture whose
    tensors have the same names, where the ``gguf`` library does not know this one.
    """

    arch: str
    config: str
    cls: str
    settings: Mapping[str, Any]
    describe: tuple[Describe, ...] = ()
    rearrange: tuple[Rearrange, ...] = ()
    not_said: frozenset[str] = field(default_factory=frozenset[str])
    loader: bool = False
    named_like: str = ""
