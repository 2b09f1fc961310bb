"""The tokenizer's files of a checkpoint, carried into the bundle."""

import json
from typing import Any, cast

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint

TOKENIZER = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
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
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pairs = [tuple(line.split(" ")) for line in merges.splitlines() if line and not line.startswith("#version")]
    try:
        settings = _json(files, "tokenizer_config.json")
        vocab: dict[str, int] = json.loads(vocabulary)
        tokenizer: Any = Tokenizer(models.BPE(vocab=vocab, merges=pairs))  # type: ignore[arg-type]
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space")))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        for token_id, token in sorted(_added_tokens(files, vocab).items()):
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
            if tokenizer.token_to_id(token.content) != token_id:
                raise ValueError(f"the added token {token.content!r} cannot have the id {token_id}")
        if settings.get("add_bos_token"):
            first = _content(settings.get("bos_token")) or END_OF_TEXT
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{first} $A", pair=None, special_tokens=[(first, tokenizer.token_to_id(first))]
            )
    except Exception as error:  # the library promises no narrower class
        raise CheckpointError(f"vocab.json and merges.txt do not make a tokenizer: {error}") from error
    return cast(str, tokenizer.to_str()).encode()


def _added_tokens(files: dict[str, bytes], vocab: dict[str, int]) -> dict[int, Any]:
    """The tokens beyond the merges by id: where today's files describe them, and where older ones list them."""
    from tokenizers import AddedToken

    described = cast(dict[str, dict[str, Any]], _json(files, "tokenizer_config.json").get("added_tokens_decoder", {}))
    if described:
        return {int(i): cast(Any, AddedToken)(**token) for i, token in described.items()}
    listed = {**vocab, **cast(dict[str, int], _json(files, "added_tokens.json"))}
    special = {END_OF_TEXT}
    for value in _json(files, "special_tokens_map.json").values():
        special |= {_content(entry) for entry in (cast(list[Any], value) if isinstance(value, list) else [value])}
    wanted = (listed.keys() - vocab.keys()) | (special & listed.keys())
    return {listed[text]: cast(Any, AddedToken)(text, special=text in special) for text in wanted}


def _content(token: Any) -> str:
    """A token written as text, or as an object with its properties."""
    return str(cast(dict[str, Any], token).get("content", "")) if isinstance(token, dict) else str(token or "")


def _json(files: dict[str, bytes], name: str) -> dict[str, Any]:
    return json.loads(files.get(name, b"{}"))
