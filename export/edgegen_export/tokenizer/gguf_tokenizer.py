"""Conversion of a GGUF file's tokenizer to ``tokenizer.json``, by llama.cpp's rules."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace as changed
from typing import Any

from edgegen.errors import CheckpointError, one_or_list
from edgegen_export.files.fields import Fields
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.components import SPACE_MARK, bpe, byte_fallback_decoder, byte_level, template
from edgegen_export.tokenizer.components import replace as replace_text
from edgegen_export.tokenizer.longest_match import longest_match
from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgegen_export.tokenizer.sentencepiece_model import (
    Algorithm,
    Piece,
    PieceType,
    SentencePieceModel,
    check_pieces,
    repeated,
)
from edgegen_export.tokenizer.sentencepiece_tokenizer import plain_tokenizer
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson
from edgegen_export.tokenizer.vocabulary_files import merge_problems

_MODEL = "tokenizer.ggml.model"
_WHOLE = "tokenizer.huggingface.json"
_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_CONTROL = re.compile(r"<\|[^\s|<>]+\|>")
"""Tokens that old converters typed as parts of words, and that no text is put together to."""
_PADDING = re.compile(r"\[PAD\d+\]")
_SPM_IDS = {"bos_token": 1, "eos_token": 2, "unk_token": 0}
_UNIGRAM_IDS = {"eos_token": 1, "unk_token": 2, "pad_token": 0}


def has_tokenizer(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata of a GGUF file describes a tokenizer."""
    return _WHOLE in metadata or metadata.get(_MODEL, "none") not in ("none", "no_vocab")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """``tokenizer.json`` and ``tokenizer_config.json`` made from the metadata.

    Raises:
        CheckpointError: the metadata is not a tokenizer, contradicts itself (every problem is listed), or is of a kind
            that is not supported.
    """
    read = Fields(metadata)
    whole, model = read.optional(_WHOLE, str), read.optional(_MODEL, str)
    defaults: Mapping[str, int] = {}
    add_bos, add_eos = False, False
    tokenizer: TokenizerJson | None = None
    if whole is not None:
        tokenizer = TokenizerJson.parse(whole.encode(), _WHOLE)
    elif model == "gpt2":
        tokenizer, add_bos = _byte_level_bpe(read)
    elif model == "gemma4":
        add_bos = True
        tokenizer = _marked_bpe(read)
    elif model == "llama":
        defaults, add_bos = _SPM_IDS, True
        tokenizer = _sentencepiece(read, Algorithm.BPE, defaults)
    elif model == "t5":
        defaults, add_eos = _UNIGRAM_IDS, True
        tokenizer = _sentencepiece(read, Algorithm.UNIGRAM, defaults)
    elif model == "rwkv":
        tokenizer = _longest_tokens(read)
    else:
        known = (
            "gpt2 (byte-level BPE), llama (SentencePiece BPE), gemma4 (BPE of letters), t5 (Unigram) or "
            "rwkv (longest tokens)"
        )
        read.problems.append(f"{_MODEL} is {model!r}, which is not supported: only {known}")
    if tokenizer is None or read.problems:
        raise _refusal(read)
    ids = _ids(read, tokenizer, defaults)
    add_bos = read.get("tokenizer.ggml.add_bos_token", bool, add_bos)
    add_eos = read.get("tokenizer.ggml.add_eos_token", bool, add_eos)
    for role, wanted in (("bos_token", add_bos), ("eos_token", add_eos)):
        if wanted and role not in ids and whole is None:
            read.problems.append(f"every text is to have the {role}, and there is no {_id_key(role)}")
    config = _config(read, tokenizer, ids)
    if read.problems:
        raise _refusal(read)
    if whole is not None:
        data = tokenizer.to_bytes() if tokenizer.leave_out_dropout() else whole.encode()
    else:
        for token_id in ids.values():
            tokenizer.add(AddedToken.literal(tokenizer.text_of(token_id) or "", special=True))
        first, last = _end(tokenizer, ids, "bos_token", add_bos), _end(tokenizer, ids, "eos_token", add_eos)
        if first or last:
            tokenizer.post_processor = template(first, last)
        config |= {"add_bos_token": add_bos, "add_eos_token": add_eos}
        data = tokenizer.to_bytes()
    return {
        "tokenizer.json": data,
        "tokenizer_config.json": (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
    }


def _byte_level_bpe(read: Fields) -> tuple[TokenizerJson | None, bool]:
    """The tokenizer, and whether BOS is added where the file does not say."""
    pieces = _pieces(read, scored=False)
    name = read.optional("tokenizer.ggml.pre", str) or "default"
    pre_tokenizer = PRE_TOKENIZERS.get(name)
    if pre_tokenizer is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        read.problems.append(f"tokenizer.ggml.pre is {name!r}, which is not supported: only {known}")
    merges = _merges(read)
    ids = {piece.text: i for i, piece in pieces.items()}
    read.problems += repeated(pieces)
    read.problems += merge_problems(ids, merges)
    if pre_tokenizer is None or read.problems:
        return None, False
    tokenizer = TokenizerJson.of(
        bpe(ids, merges, ignore_merges=pre_tokenizer.ignore_merges),
        normalizer=pre_tokenizer.normalizer,
        pre_tokenizer=pre_tokenizer.component,
        decoder=byte_level(),
    )
    _add_symbols(tokenizer, pieces)
    return tokenizer, pre_tokenizer.add_bos


def _marked_bpe(read: Fields) -> TokenizerJson | None:
    """BPE of letters, with marks for spaces and bytes for letters without a token; text is not split before."""
    pieces, merges = _pieces(read, scored=False), _merges(read)
    ids = {piece.text: i for i, piece in pieces.items()}  # of tokens with the same text the last, as llama.cpp has it
    read.problems += merge_problems(ids, merges)
    if read.problems:
        return None
    unknown = next((piece.text for piece in pieces.values() if piece.type == PieceType.UNKNOWN), None)
    given = read.optional(_id_key("unk_token"), int)
    if unknown is None and given in pieces:
        unknown = pieces[given].text
    has_bytes = any(piece.type == PieceType.BYTE for piece in pieces.values())
    tokenizer = TokenizerJson.of(
        bpe(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes),
        normalizer=replace_text(" ", SPACE_MARK),
        decoder=byte_fallback_decoder(drop_first_space=False),
    )
    _add_symbols(tokenizer, pieces)
    return tokenizer


def _longest_tokens(read: Fields) -> TokenizerJson | None:
    """RWKV's: the longest token at each place; a token's text is what Python writes for its bytes, without quotes."""
    pieces = _pieces(read, scored=False)
    tokens, others = dict[int, bytes](), dict[int, str]()
    for i, piece in pieces.items():
        if piece.type != PieceType.NORMAL:
            others[i] = piece.text
            continue
        try:
            tokens[i] = piece.text.encode("latin-1").decode("unicode_escape").encode("latin-1")
        except (UnicodeDecodeError, UnicodeEncodeError):
            read.problems.append(f"token {i}, {piece.text!r}, is not what Python writes for bytes")
    if read.problems:
        return None
    tokenizer = longest_match(tokens, others)
    _add_symbols(tokenizer, pieces)
    return tokenizer


def _merges(read: Fields) -> list[tuple[str, str]]:
    lines = read.list_of("tokenizer.ggml.merges", str)
    if not lines:
        read.problems.append("there is no tokenizer.ggml.merges")
    # A merge may start with a space, which belongs to its first token.
    return [(line[:1] + left, right) for line in lines for left, _, right in [line[1:].partition(" ")]]


def _add_symbols(tokenizer: TokenizerJson, pieces: Mapping[int, Piece]) -> None:
    for piece in pieces.values():
        if piece.type in (PieceType.CONTROL, PieceType.USER_DEFINED, PieceType.UNKNOWN):
            tokenizer.add(AddedToken.literal(piece.text, special=piece.type != PieceType.USER_DEFINED))


def _sentencepiece(read: Fields, algorithm: Algorithm, defaults: Mapping[str, int]) -> TokenizerJson | None:
    pieces = tuple(_pieces(read, scored=True).values())
    read.problems += check_pieces(pieces)
    is_bpe = algorithm == Algorithm.BPE
    prefix = read.get("tokenizer.ggml.add_space_prefix", bool, is_bpe)
    extra = read.get("tokenizer.ggml.remove_extra_whitespaces", bool, False)
    charsmap = bytes(number & 0xFF for number in read.list_of("tokenizer.ggml.precompiled_charsmap", int))
    # Converters mark the unknown token as a control token if the tokenizer's config lists it as special, and older ones
    # mark tokens that pad the vocabulary as unknown; llama.cpp takes these for control tokens.
    given = read.get(_id_key("unk_token"), int, defaults["unk_token"])
    typed = [i for i, piece in enumerate(pieces) if piece.type == PieceType.UNKNOWN]
    unknown = typed[0] if len(typed) == 1 else given
    if not read.problems and not 0 <= unknown < len(pieces):
        read.problems.append(f"token {unknown} is to stand for the unknown, and there are only {len(pieces)}")
    if read.problems:
        return None
    pieces = tuple(
        changed(piece, type=PieceType.CONTROL) if i in typed and i != unknown else piece
        for i, piece in enumerate(pieces)
    )
    return plain_tokenizer(
        SentencePieceModel(
            pieces=pieces,
            algorithm=algorithm,
            unk_id=unknown,
            byte_fallback=any(piece.type == PieceType.BYTE for piece in pieces),
            charsmap=charsmap,
            add_dummy_prefix=prefix,
            remove_extra_whitespaces=extra,
        )
    )


def _pieces(read: Fields, *, scored: bool) -> dict[int, Piece]:
    """The tokens by id, without the unused ones that pad byte-level vocabularies."""
    texts, types = read.list_of(_TOKENS, str), read.list_of("tokenizer.ggml.token_type", int)
    scores = read.list_of("tokenizer.ggml.scores", float)
    if not texts:
        read.problems.append(f"there is no {_TOKENS}")
    if scored and not scores:
        read.problems.append("there is no tokenizer.ggml.scores")
    for key, values in (("token_type", types), ("scores", scores if scored else ())):
        if values and len(values) != len(texts):
            read.problems.append(f"tokenizer.ggml.{key} has {len(values)} values for {len(texts)} tokens")
    wrong = sorted({kind for kind in types if kind not in _TYPES})
    if wrong:
        read.problems.append(f"tokenizer.ggml.token_type has unknown types: {', '.join(map(str, wrong[:5]))}")
    if read.problems:
        return {}
    types = types or [int(PieceType.NORMAL)] * len(texts)
    scores = scores if scored else [0.0] * len(texts)
    types = [
        int(PieceType.USER_DEFINED) if kind == PieceType.NORMAL and _CONTROL.fullmatch(text) else kind
        for kind, text in zip(types, texts, strict=True)
    ]
    pieces = {i: Piece(*parts) for i, parts in enumerate(zip(texts, scores, map(PieceType, types), strict=True))}
    if scored:
        return pieces
    return {
        i: piece
        for i, piece in pieces.items()
        if piece.text and not (piece.type == PieceType.UNUSED and _PADDING.fullmatch(piece.text))
    }


_TYPES = frozenset(PieceType)


def _ids(read: Fields, tokenizer: TokenizerJson, defaults: Mapping[str, int]) -> dict[str, int]:
    """Special token ids by role, from the metadata or the defaults of this kind of tokenizer."""
    ids: dict[str, int] = {}
    for role in _ROLES:
        key = _id_key(role)
        token_id = read.optional(key, int)
        if token_id is None:
            token_id = defaults.get(role)
            if token_id is None or tokenizer.text_of(token_id) is None:
                continue
        elif tokenizer.text_of(token_id) is None:
            read.problems.append(f"{key} is {token_id}, and there is no such token")
            continue
        ids[role] = token_id
    return ids


def _id_key(role: str) -> str:
    return f"tokenizer.ggml.{_ROLES[role]}_token_id"


def _end(tokenizer: TokenizerJson, ids: Mapping[str, int], role: str, wanted: bool) -> tuple[str, int] | None:
    text = tokenizer.text_of(ids[role]) if wanted else None
    return None if text is None else (text, ids[role])


def _config(read: Fields, tokenizer: TokenizerJson, ids: Mapping[str, int]) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {role: tokenizer.text_of(token_id) for role, token_id in ids.items()}
    default = read.optional(_TEMPLATE, str)
    named = {name: read.optional(f"{_TEMPLATE}.{name}", str) for name in read.list_of("tokenizer.chat_templates", str)}
    if default is not None:
        named = {"default": default, **named}
    templates = [{"name": name, "template": text} for name, text in named.items() if text is not None]
    if named.keys() - {"default"}:
        config["chat_template"] = templates
    elif default is not None:
        config["chat_template"] = default
    return config


def _refusal(read: Fields) -> CheckpointError:
    return CheckpointError(f"the tokenizer in the GGUF file: {one_or_list(read.problems)}")
