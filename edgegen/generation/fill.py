"""Fill in the middle (FIM, arXiv:2207.14255): prompts for a text between a prefix and a suffix."""

from collections.abc import Container, Sequence

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
    """Return the fill-in-the-middle tokens of a vocabulary; None if it has none, as such models cannot fill in."""
    return next((tokens for tokens in _FILLS if all(token in known for token in tokens)), None)


_REPOSITORIES, _FILES = ("<|repo_name|>", "<reponame>"), ("<|file_sep|>", "<file_sep>")
"""Tokens before the name of a repository, and before the name of each of its files."""

_CONTROL = frozenset({*(token for tokens in _FILLS for token in tokens), *_REPOSITORIES, *_FILES})


def fill_prompt(
    tokenizer: Tokenizer | None, prefix: str, suffix: str, extra: Sequence[tuple[str, str]] = ()
) -> list[int]:
    """The ids of a prompt after which a model writes what stands between ``prefix`` and ``suffix``.

    The texts are text: what they spell of control tokens is spelled by other tokens.

    ``extra``: name and text of other files, which come before, as llama-server's ``/infill`` puts them.

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
    before, between, after = (ids[token] for token in tokens)
    files = _files(tokenizer, extra) if extra else []
    return tokenizer.frame([*files, before, *_plain(tokenizer, prefix), between, *_plain(tokenizer, suffix), after])


def _files(tokenizer: Tokenizer, extra: Sequence[tuple[str, str]]) -> list[int]:
    """Other files, each after a token for it and its name where the model has one, and after a line elsewhere."""
    repository, file = (
        next((found for token in names if (found := tokenizer.token_to_id(token)) is not None), None)
        for names in (_REPOSITORIES, _FILES)
    )
    ids = list[int]() if repository is None else [repository, *_plain(tokenizer, "myproject\n")]
    for name, text in extra:
        ids += _plain(tokenizer, "\n\n--- snippet ---\n\n") if file is None else [file, *_plain(tokenizer, f"{name}\n")]
        ids += _plain(tokenizer, text)
    return ids if file is None else [*ids, file, *_plain(tokenizer, "filename\n")]


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode_as_text(text, _CONTROL) if text else []
