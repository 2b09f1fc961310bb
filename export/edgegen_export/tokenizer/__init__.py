"""Tokenizers of checkpoints as ``tokenizer.json``: whatever files describe them, the ids are those of the original."""
