"""Characters of the classes in published pre-tokenizers, as ``tests.warm_exports`` has those of GPT-2's."""

from tests.warm_exports import know_characters

for _name in ("deepseek-v3", "gpt-4o", "llama-bpe", "qwen2", "qwen35", "tekken"):
    know_characters(_name)
