"""The tokenizer's files of a checkpoint, carried into the bundle."""

import json
from typing import Any, cast

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint

TOKENIZER = "tokenizer.json"
_COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Name → contents. Without a ``tokenizer.json``, one is made of ``vocab.json`` and ``merges.txt`` (GPT-2's BPE).

    Empty where the checkpoint has no tokenizer at all.

    Raises:
        CheckpointError: vocabulary and merges do not make a tokenizer.
    """
    files = {name: path.read_bytes() for name in (TOKENIZER, *_COMPANIONS) if (path := checkpoint.file(name))}
    if TOKENIZER not in files:
        vocabulary, merges = checkpoint.file("vocab.json"), checkpoint.file("merges.txt")
        if vocabulary is None or merges is None:
            return {}
        files[TOKENIZER] = _byte_level_bpe(vocabulary.read_text("utf-8"), merges.read_text("utf-8"), files)
    return files


def _byte_level_bpe(vocabulary: str, merges: str, files: dict[str, bytes]) -> bytes:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    pairs = [tuple(line.split(" ")) for line in merges.splitlines() if line and not line.startswith("#version")]
    try:
        settings = json.loads(files.get("tokenizer_config.json", b"{}"))
        vocab: dict[str, int] = json.loads(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs))  # type: ignore[arg-type]
    except Exception as error:  # the library promises no narrower class
        raise CheckpointError(f"vocab.json and merges.txt do not make a tokenizer: {error}") from error
    prefix_space = bool(settings.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if "<|endoftext|>" in vocab:
        cast(Any, tokenizer).add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    return cast(str, cast(Any, tokenizer).to_str()).encode()
