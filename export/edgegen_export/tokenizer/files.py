"""The tokenizer files of a bundle, copied or converted from the checkpoint's."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from edgegen.errors import CheckpointError, did_you_mean
from edgegen.system import read_regular
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.companions import MORE_TEMPLATES, WORLD
from edgegen_export.checkpoint.weight_files import listed, without_mark
from edgegen_export.tokenizer.chat_templates import PROCESSORS, TEMPLATE, settle_templates, templates_of
from edgegen_export.tokenizer.classes import TOKENIZER_CLASSES, UNNAMED, TokenizerClass, class_name
from edgegen_export.tokenizer.completion import complete
from edgegen_export.tokenizer.gguf_tokenizer import has_tokenizer, tokenizer_from_gguf
from edgegen_export.tokenizer.longest_match import read_world, world_tokenizer
from edgegen_export.tokenizer.sentencepiece_model import read_sentencepiece
from edgegen_export.tokenizer.settings import (
    ADDED_TOKENS,
    CONFIG,
    MORE_SPECIAL,
    ROLES,
    SPECIAL_TOKENS,
    TokenizerSettings,
    read_object,
    text_of,
)
from edgegen_export.tokenizer.special_tokens import misread, read_tokenizer
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson
from edgegen_export.tokenizer.vocabulary_files import MERGES, VOCABULARY, read_vocabulary

TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")
"""The SentencePiece model's usual name, and T5's."""
_COMPANIONS = (CONFIG, SPECIAL_TOKENS, ADDED_TOKENS, TEMPLATE, PROCESSORS)
_OTHER_VOCABULARY = re.compile(r".+\.tiktoken|tekken\.json|tokenizer\.model\.v\d+.*")
"""Names of vocabularies that only other programs read: tiktoken's, and those of Mistral's own library."""


def tokenizer_files(checkpoint: Checkpoint, warn: Callable[[str], None] = lambda _: None) -> dict[str, bytes]:
    """Name → contents. The ``tokenizer.json`` alone gives the same ids as transformers with all files.

    The checkpoint's own file is copied unchanged where that holds. Without one it is converted from
    ``tokenizer.model``, ``vocab.json`` and ``merges.txt``, RWKV's vocabulary, or GGUF metadata. Empty if the checkpoint
    has no tokenizer.
    ``warn`` hears of a chat template that is left out, and of ids that are not transformers'.

    Raises:
        CheckpointError: the files are malformed or contradict each other, or nothing says how to read them.
    """
    if has_tokenizer(checkpoint.metadata):
        return tokenizer_from_gguf(checkpoint.metadata)
    sources = (TOKENIZER, *_SENTENCEPIECE, VOCABULARY, MERGES, WORLD)
    found = {name: read_regular(path) for name in sources if (path := checkpoint.file(name))}
    if not {TOKENIZER, *_SENTENCEPIECE, WORLD} & found.keys() and not {VOCABULARY, MERGES} <= found.keys():
        _refuse_other_vocabularies(checkpoint)
        return {}
    found = {name: data if name in _SENTENCEPIECE else without_mark(data, name) for name, data in found.items()}
    files = {name: without_mark(read_regular(path), name) for name in _COMPANIONS if (path := checkpoint.file(name))}
    templates = {
        file.removeprefix(f"{MORE_TEMPLATES}/").removesuffix(".jinja"): without_mark(read_regular(path), file)
        for file, path in checkpoint.files_below(MORE_TEMPLATES, ".jinja").items()
    }
    settings = TokenizerSettings.read(files)
    files = _with_named_tokens(settle_templates(files, templates, warn), settings)
    name = class_name(settings, checkpoint.config)
    kind = TOKENIZER_CLASSES.get(name or UNNAMED, TokenizerClass())
    made = TOKENIZER not in found or _rebuilt(kind, settings, found)
    tokenizer = _made(found, name, kind, settings) if made else TokenizerJson.parse(found[TOKENIZER], TOKENIZER)
    changed = complete(tokenizer, settings, kind, made=made)
    if dropout := tokenizer.leave_out_dropout():
        changed = True
        warn(f"{TOKENIZER} leaves out merges at random (dropout = {dropout}), which is of the training: left out")
    changed |= _find_unflagged(tokenizer, settings, "".join(templates_of(files).values()), warn)
    return {TOKENIZER: tokenizer.to_bytes() if made or changed else found[TOKENIZER], **files}


def end_of_sequence(files: Mapping[str, bytes]) -> tuple[str, int] | None:
    """Text and id of the ``eos_token`` that a bundle's tokenizer files alone name; None where they name none.

    Raises:
        CheckpointError: a file is malformed.
    """
    if TOKENIZER not in files:
        return None
    token = TokenizerSettings.read(files).special("eos_token")
    token_id = TokenizerJson.parse(files[TOKENIZER], TOKENIZER).id_of(token.content) if token else None
    return None if token is None or token_id is None else (token.content, token_id)


def _refuse_other_vocabularies(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose vocabulary is in a format that would be ignored.

    Raises:
        CheckpointError: the only vocabulary is one that is not read.
    """
    if others := sorted(filter(_OTHER_VOCABULARY.fullmatch, checkpoint.listing.files)):
        raise CheckpointError(
            f"{checkpoint.path} has the vocabulary {listed(others)}, which is not read, and no {TOKENIZER}: "
            f"add the {TOKENIZER} that transformers saves, or take {listed(others)} away to export a model of token "
            "ids alone"
        )


def _with_named_tokens(files: dict[str, bytes], settings: TokenizerSettings) -> dict[str, bytes]:
    """The files with a config that has the special tokens as transformers takes them: where it does not describe its
    added tokens, ``special_tokens_map.json`` prevails. Chat templates know the tokens by the config's names."""
    named = {} if settings.described else read_object(files, SPECIAL_TOKENS)
    config = read_object(files, CONFIG)
    prevailing = {
        role: named[role] for role in ROLES if role in named and text_of(config.get(role)) != text_of(named[role])
    }
    if not prevailing or CONFIG not in files:
        return files
    return {**files, CONFIG: (json.dumps({**config, **prevailing}, indent=2) + "\n").encode()}


def _find_unflagged(
    tokenizer: TokenizerJson, settings: TokenizerSettings, templates: str, warn: Callable[[str], None]
) -> bool:
    """Have the added tokens that a template writes found anywhere in a text; return whether anything changed.

    transformers gives a token of ``added_tokens.json`` that no file calls special flags by which its fast tokenizers
    of Llama and Mistral find it only where a text starts; its slow ones find it anywhere.
    """
    written = {
        token.content: i
        for i, token in tokenizer.added.items()
        if i in settings.unflagged and token.normalized and token.content in templates
    }
    lost = misread(read_tokenizer(tokenizer.to_bytes()), written) if written else {}
    for text in lost:
        tokenizer.add(replace(tokenizer.added[written[text]], normalized=False))
    if lost:
        warn(
            f"the chat template writes {listed(list(lost))} of {ADDED_TOKENS}, which no file calls special: found "
            "anywhere in a text, as by transformers' slow tokenizer; the fast one finds it only where a text starts "
            f"(name it in {MORE_SPECIAL} of {SPECIAL_TOKENS} to have both agree)"
        )
    return bool(lost)


def _rebuilt(kind: TokenizerClass, settings: TokenizerSettings, found: dict[str, bytes]) -> bool:
    return kind.rebuilt_for_prefix and settings.add_prefix_space is not None and _SENTENCEPIECE[0] in found


def _made(
    found: dict[str, bytes], name: str | None, kind: TokenizerClass, settings: TokenizerSettings
) -> TokenizerJson:
    """The tokenizer converted from the files that the class reads."""
    model = next((file for file in _SENTENCEPIECE if file in found), None)
    if kind.from_sentencepiece and model:
        return kind.from_sentencepiece(read_sentencepiece(found[model], model), settings)
    if WORLD in found:
        return world_tokenizer(read_world(found[WORLD], WORLD), settings)
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
