"""The end-of-sequence token that only a tokenizer's files name."""

from collections.abc import Mapping

from edgegen_export.tokenizer.files import TOKENIZER
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson


def end_of_sequence(files: Mapping[str, bytes]) -> tuple[str, int] | None:
    """Text and id of the ``eos_token`` of a bundle's tokenizer files; None where they name none.

    Raises:
        CheckpointError: a file is malformed.
    """
    if TOKENIZER not in files:
        return None
    token = TokenizerSettings.read(files).special("eos_token")
    token_id = TokenizerJson.parse(files[TOKENIZER], TOKENIZER).id_of(token.content) if token else None
    return None if token is None or token_id is None else (token.content, token_id)
