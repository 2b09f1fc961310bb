"""Companion files: those of tokenizers and embeddings, licences and model cards that go along with weights, by name."""

import re

WORLD = "rwkv_vocab_v20230424.txt"
"""RWKV's vocabulary, of which there is this one version."""

TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", WORLD})
"""Each describes a vocabulary; the JSON one together with ``merges.txt``."""

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


MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
"""The files of sentence-transformers: what follows the transformer, prompts, and how texts are read."""


def is_embedding_file(name: str) -> bool:
    """Whether this is a file of sentence-transformers, or the config of one of its modules (``1_Pooling``)."""
    return name in (MODULES, PROMPTS, TRANSFORMER) or re.fullmatch(r"[0-9]+_[A-Za-z]+/config\.json", name) is not None


def is_license_file(name: str) -> bool:
    """Whether this is a licence, its notice or the model card, at the top of a folder."""
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "README")) and "/" not in name
