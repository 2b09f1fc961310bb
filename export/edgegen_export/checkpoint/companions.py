"""Companion files: tokenizer files, licences and model cards that go along with a model's weights, by name."""

TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"})
"""Each describes a vocabulary; the last with ``merges.txt``."""

TOKENIZER_FILES = TOKENIZERS | {
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
}


def is_paper(name: str) -> bool:
    """Whether this is a licence, its notice or the model card, at the top of a folder."""
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "README")) and "/" not in name
