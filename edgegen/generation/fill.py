"""Fill in the middle (FIM, arXiv:2207.14255): prompts for a text between a prefix and a suffix."""

from collections.abc import Container

from edgegen.errors import UsageError
from edgegen.tokenizer import Tokenizer

_FILLS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
)
"""Tokens before a prefix, before its suffix, and before what is written between them: Qwen's and Gemma's, StarCoder's,
SantaCoder's, Code Llama's, DeepSeek's."""


def fill_tokens(known: Container[str]) -> tuple[str, str, str] | None:
    """Those of a vocabulary, if it has them; models with others cannot fill in."""
    return next((tokens for tokens in _FILLS if all(token in known for token in tokens)), None)


def fill_prompt(tokenizer: Tokenizer | None, prefix: str, suffix: str) -> list[int]:
    """The ids of a prompt after which a model writes what stands between ``prefix`` and ``suffix``.

    Raises:
        UsageError: the model has no tokens for a prefix and a suffix.
    """
    ids = dict[str, int]()
    if tokenizer is not None:
        found = {token: tokenizer.token_to_id(token) for tokens in _FILLS for token in tokens}
        ids = {token: token_id for token, token_id in found.items() if token_id is not None}
    tokens = fill_tokens(ids)
    if tokens is None or tokenizer is None:
        raise UsageError("this model cannot fill in, as it has no tokens for a prefix and a suffix.")
    first, second = (tokenizer.encode(text, add_special_tokens=False) if text else [] for text in (prefix, suffix))
    before, between, after = (ids[token] for token in tokens)
    return tokenizer.frame([before, *first, between, *second, after])
