"""A byte-level tokenizer of merges that the tokenizers library learns, with any other parts."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import tokenizers

from edgegen_export.tokenizer.components import Component, byte_level
from tests.byte_level import LETTER_OF_BYTE

SAMPLE = (
    "the cat's hat, they'll say: don't! 12345 times 678\r\n\r\n\tdef f(x):\n        return x_1 ** 2\n\n\n"
    "Größe naïve café Привет мир שלום مرحبا नमस्ते สวัสดี 你好，世界。 こんにちは 한국어 😀👩\u200d👩\u200d👧🏽  "
) * 3
SPECIAL = {"<|end|>": {}, "<|end|>s": {}, "<tool>": {"special": False}, "é好": {"special": False, "normalized": True}}
"""Added tokens, one of which another begins with."""


def byte_level_tokenizer(
    pre_tokenizer: Component | None = None,
    *,
    normalizer: Component | None = None,
    post_processor: Component | None = None,
    special: Mapping[str, Mapping[str, Any]] = SPECIAL,
    **model: Any,
) -> dict[str, Any]:
    """A ``tokenizer.json`` of learnt merges."""
    library = cast(Any, tokenizers)
    made = library.Tokenizer.from_str(learnt())
    for text, flags in special.items():
        made.add_tokens([library.AddedToken(text, **{"special": True, "normalized": False} | dict(flags))])
    content: dict[str, Any] = json.loads(made.to_str())
    content["pre_tokenizer"] = byte_level() if pre_tokenizer is None else pre_tokenizer
    content["normalizer"], content["post_processor"] = normalizer, post_processor
    content["model"] |= model
    return content


@cache
def learnt() -> str:
    """A tokenizer of merges that the library has learnt of ``SAMPLE``."""
    library = cast(Any, tokenizers)
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    alphabet = [*LETTER_OF_BYTE.values()]
    trainer = library.trainers.BpeTrainer(
        vocab_size=700, min_frequency=1, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([SAMPLE], trainer)
    return made.to_str()
