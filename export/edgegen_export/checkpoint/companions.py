"""Companion files: tokenizer files, licences and model cards that go along with a model's weights, by name."""

WORLD = "rwkv_vocab_v20230424.txt"
"""RWKV's vocabulary, of which there is this one version."""

TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", WORLD})
"""Each describes a vocabulary; that of JSON with ``merges.txt``."""

TOKENIZER_FILES = TOKENIZERS | {
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
}

MORE_TEMPLATES = "additional_chat_templates"
"""The folder of further chat templates, ``NAME.jinja``."""


def is_tokenizer_file(name: str) -> bool:
    """Whether this is one of :data:`TOKENIZER_FILES`, or a further chat template."""
    return name in TOKENIZER_FILES or (name.startswith(f"{MORE_TEMPLATES}/") and name.endswith(".jinja"))


def is_license_file(name: str) -> bool:
    """Whether this is a licence, its notice or the model card, at the top of a folder."""
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "README")) and "/" not in name
