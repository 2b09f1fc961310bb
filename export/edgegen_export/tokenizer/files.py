"""The tokenizer files of a bundle, copied or converted from the checkpoint's."""

from edgegen.errors import CheckpointError, did_you_mean
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.tokenizer.classes import TOKENIZER_CLASSES, UNNAMED, TokenizerClass, class_name
from edgegen_export.tokenizer.completion import complete
from edgegen_export.tokenizer.gguf_tokenizer import has_tokenizer, tokenizer_from_gguf
from edgegen_export.tokenizer.sentencepiece_model import read_sentencepiece
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson
from edgegen_export.tokenizer.vocabulary_files import MERGES, VOCABULARY, read_vocabulary

TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")
"""The SentencePiece model's usual name, and T5's."""
_COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Name → contents. The ``tokenizer.json`` alone gives the same ids as transformers with all files.

    The checkpoint's own file is copied unchanged where that holds. Without one it is converted from
    ``tokenizer.model``, ``vocab.json`` and ``merges.txt``, or GGUF metadata. Empty if the checkpoint has no tokenizer.

    Raises:
        CheckpointError: the files are malformed or contradict each other, or nothing says how to read them.
    """
    if has_tokenizer(checkpoint.metadata):
        return tokenizer_from_gguf(checkpoint.metadata)
    files = {name: path.read_bytes() for name in _COMPANIONS if (path := checkpoint.file(name))}
    sources = (TOKENIZER, *_SENTENCEPIECE, VOCABULARY, MERGES)
    found = {name: path.read_bytes() for name in sources if (path := checkpoint.file(name))}
    if not {TOKENIZER, *_SENTENCEPIECE} & found.keys() and not {VOCABULARY, MERGES} <= found.keys():
        return {}
    settings = TokenizerSettings.read(files)
    name = class_name(settings, checkpoint.config)
    kind = TOKENIZER_CLASSES.get(name or UNNAMED, TokenizerClass())
    if TOKENIZER in found and not _rebuilt(kind, settings, found):
        carried = TokenizerJson.parse(found[TOKENIZER], TOKENIZER)
        changed = complete(carried, settings, kind, made=False)
        return {TOKENIZER: carried.to_bytes() if changed else found[TOKENIZER], **files}
    made = _made(found, name, kind, settings)
    complete(made, settings, kind, made=True)
    return {TOKENIZER: made.to_bytes(), **files}


def _rebuilt(kind: TokenizerClass, settings: TokenizerSettings, found: dict[str, bytes]) -> bool:
    return kind.rebuilt_for_prefix and settings.add_prefix_space is not None and _SENTENCEPIECE[0] in found


def _made(
    found: dict[str, bytes], name: str | None, kind: TokenizerClass, settings: TokenizerSettings
) -> TokenizerJson:
    """The tokenizer converted from the files that the class reads."""
    model = next((file for file in _SENTENCEPIECE if file in found), None)
    if kind.from_sentencepiece and model:
        return kind.from_sentencepiece(read_sentencepiece(found[model], model), settings)
    if kind.from_vocabulary and {VOCABULARY, MERGES} <= found.keys():
        return kind.from_vocabulary(read_vocabulary(found[VOCABULARY], found[MERGES]), settings)
    there = " and ".join(sorted(found))
    near = did_you_mean(name, TOKENIZER_CLASSES) if name and name not in TOKENIZER_CLASSES else ""
    reads = f"how {name}{near} reads {there} is not known" if name else f"no config names the class that reads {there}"
    raise CheckpointError(
        f"there is no {TOKENIZER}, and {reads}: "
        f"add the {TOKENIZER} that transformers saves (AutoTokenizer.from_pretrained(folder).save_pretrained(folder)), "
        f"or take {there} away to export a model of token ids alone"
    )
