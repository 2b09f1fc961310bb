"""The tokenizer of a bundle that is being written."""

import hashlib
import json
from pathlib import Path

from edgegen.errors import BundleError, CheckpointError
from edgegen.model.kernels import kernel_library
from edgegen.system import read_regular
from edgegen.tokenizer import COMPILED, Tokenizer


def written_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the ``tokenizer.json`` at ``path``, as the runtime opens it: its compiled form first.

    Raises:
        CheckpointError: it is none that can be read.
    """
    library, form = kernel_library(), path.with_name(COMPILED)
    try:
        if library is not None and form.is_file():
            sha256 = hashlib.sha256(read_regular(path)).hexdigest()
            if (compiled := Tokenizer.from_compiled(form, path, sha256, library)) is not None:
                return compiled
        return Tokenizer.from_file(path)
    except BundleError as error:
        raise CheckpointError(f"{path.name} is not a readable tokenizer: {error.__cause__ or error}") from error


def added_ids(data: bytes) -> set[int]:
    """The ids of the added tokens in a ``tokenizer.json``."""
    return {token["id"] for token in json.loads(data).get("added_tokens") or ()}
