"""Conversion of a SentencePiece model to ``tokenizer.json``, as transformers' classes or the library itself do it."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as changed

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.components import (
    SPACE_MARK,
    Component,
    bpe,
    byte_fallback_decoder,
    chain,
    metaspace,
    replace,
    replace_regex,
    template,
    unigram,
)
from edgegen_export.tokenizer.sentencepiece_model import Algorithm, Piece, PieceType, SentencePieceModel
from edgegen_export.tokenizer.settings import TokenizerSettings
from edgegen_export.tokenizer.tokenizer_json import TokenizerJson

_TURNS = frozenset({"<start_of_turn>", "<end_of_turn>"})


_NOT_PRINTED = r"[\x{0}-\x{8}\x{B}-\x{1F}\x{7F}-\x{A0}\x{AD}\x{200B}]"
_SPACES = r"[\x{2002}\x{2003}\x{2005}\x{2008}-\x{200A}\x{202F}\x{3000}\x{FFFC}]"
"""Characters that GPT-SW3's class of transformers removes from a text, and those that it reads as a space."""


def gpt_sw3_tokenizer(model: SentencePieceModel, settings: TokenizerSettings) -> TokenizerJson:
    """GPT-SW3: the library's tokenizer after a normalization of the class's own."""
    return plain_tokenizer(model, [replace_regex(_NOT_PRINTED, ""), replace_regex(_SPACES, " "), {"type": "NFC"}])


def plain_tokenizer(model: SentencePieceModel, first: Sequence[Component] = ()) -> TokenizerJson:
    """The tokenizer as the SentencePiece library runs the model; sections between symbols are independent.

    ``first``: what is done to a text before that.
    """
    steps = list(first)
    if model.charsmap:
        steps.append(_precompiled(model))
    if model.remove_extra_whitespaces:
        steps += [replace_regex(r"\A +| +\z", ""), replace_regex(" {2,}", " ")]
    if model.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE_MARK})
    steps.append(replace(" ", SPACE_MARK))
    return _with_symbols(
        TokenizerJson.of(
            _model(model, byte_fallback=model.byte_fallback),
            normalizer=chain("normalizers", steps),
            decoder=byte_fallback_decoder(drop_first_space=model.add_dummy_prefix),
        ),
        model.pieces,
    )


def llama_tokenizer(model: SentencePieceModel, settings: TokenizerSettings) -> TokenizerJson:
    """Llama, Mistral, Phi-3: the model's normalization is ignored. ``legacy`` prepends a space to every section between
    special tokens, not to the first one only.

    Where ``add_prefix_space`` is null, transformers' fast tokenizer prepends none. So does this one for models that
    were tuned with tokens of their own; without such tokens the vocabulary is read as its original reads it.
    """
    named = {i: settings.added[i].content for i in range(3) if i in settings.added}
    pieces = tuple(changed(p, text=named[i]) if i in named else p for i, p in enumerate(model.pieces))
    model = changed(model, pieces=_unscored(pieces))
    prefix = settings.add_prefix_space is not False and not (
        settings.null_prefix_space and _has_tokens(model, settings)
    )
    if settings.legacy is not False:
        legacy = changed(
            model, charsmap=b"", remove_extra_whitespaces=False, add_dummy_prefix=prefix, byte_fallback=True
        )
        return plain_tokenizer(legacy)
    return _with_symbols(
        TokenizerJson.of(
            _model(model, byte_fallback=True),
            pre_tokenizer=metaspace("first" if prefix else "never", split=False),
            decoder=byte_fallback_decoder(drop_first_space=prefix),
        ),
        pieces,
    )


def _has_tokens(model: SentencePieceModel, settings: TokenizerSettings) -> bool:
    """Whether there are added or special tokens beside the model's own first three."""
    first = {piece.text for piece in model.pieces[:3]}
    named = (*settings.specials.values(), *settings.more_special, *settings.added.values())
    symbols = any(piece.type in (PieceType.CONTROL, PieceType.USER_DEFINED) for piece in model.pieces[3:])
    return symbols or any(token is not None and token.content not in first for token in named)


def gemma_tokenizer(model: SentencePieceModel, settings: TokenizerSettings) -> TokenizerJson:
    """Gemma: no prepended space. The first models have no piece for the tab and use its byte instead."""
    roles = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    first = [settings.special(role, default) for role, default in roles.items()]
    names = [token.content if token else piece.text for token, piece in zip(first, model.pieces, strict=False)]
    renamed = [changed(piece, text=name) for piece, name in zip(model.pieces, names, strict=False)]
    pieces = _unscored((*renamed, *model.pieces[len(renamed) :]))
    if not any(piece.text == "\t" for piece in pieces):
        pieces = tuple(Piece("\t", 0.0) if piece.text == "<0x09>" else piece for piece in pieces)
    return _with_symbols(
        TokenizerJson.of(
            _model(changed(model, pieces=pieces), byte_fallback=True),
            normalizer=replace(" ", SPACE_MARK),
            decoder=byte_fallback_decoder(drop_first_space=False),
        ),
        pieces,
        special=_TURNS,
    )


def t5_tokenizer(model: SentencePieceModel, settings: TokenizerSettings) -> TokenizerJson:
    """T5: text is split at spaces, ``</s>`` is appended, and extra tokens follow the vocabulary."""
    steps: list[Component] = [_precompiled(model)] if model.charsmap else []
    steps += [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        replace_regex(" {2,}", SPACE_MARK),
    ]
    extra = tuple(Piece(f"<extra_id_{i}>", 0.0) for i in reversed(range(settings.extra_ids)))
    prepend = "first" if settings.legacy is False else "always"
    spaces = metaspace(prepend if settings.add_prefix_space is not False else "never", split=True)
    model = changed(model, pieces=(*model.pieces, *extra))
    tokenizer = _with_symbols(
        TokenizerJson.of(
            _model(model, byte_fallback=False),
            normalizer=chain("normalizers", steps),
            pre_tokenizer=spaces,
            decoder=spaces,
        ),
        model.pieces,
    )
    for piece in extra:
        tokenizer.add(AddedToken.literal(piece.text, special=True))
    end = settings.special("eos_token", "</s>")
    end_id = tokenizer.id_of(end.content) if end else None
    if end is None or end_id is None:
        raise CheckpointError("a T5 tokenizer ends every text with its eos_token, and the vocabulary does not have it")
    tokenizer.post_processor = template(None, (end.content, end_id))
    return tokenizer


def _model(model: SentencePieceModel, *, byte_fallback: bool) -> Component:
    scores = [(piece.text, piece.score) for piece in model.pieces]
    if model.algorithm == Algorithm.UNIGRAM:
        return unigram(scores, unk_id=model.unk_id, byte_fallback=byte_fallback)
    vocab = {piece.text: i for i, piece in enumerate(model.pieces)}
    if len(vocab) < len(model.pieces):
        raise CheckpointError("two tokens of the vocabulary have the same name, given to one by tokenizer_config.json")
    return bpe(
        vocab,
        merges_of(vocab, scores),
        unk_token=model.unk_piece,
        fuse_unk=True,
        byte_fallback=byte_fallback,
    )


def _with_symbols(
    tokenizer: TokenizerJson, pieces: Sequence[Piece], special: frozenset[str] = frozenset()
) -> TokenizerJson:
    """Add control pieces as special tokens and user-defined pieces as literal ones."""
    for piece in pieces:
        if piece.type in (PieceType.CONTROL, PieceType.USER_DEFINED):
            is_special = piece.type == PieceType.CONTROL or piece.text in special
            tokenizer.add(AddedToken.literal(piece.text, special=is_special))
    return tokenizer


def _unscored(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces with scores of zero for the first three, as these classes have them."""
    return (*(changed(piece, score=0.0) for piece in pieces[:3]), *pieces[3:])


def _precompiled(model: SentencePieceModel) -> Component:
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(model.charsmap).decode()}


def merges_of(ids: Mapping[str, int], scores: Iterable[tuple[str, float]]) -> list[tuple[str, str]]:
    """All merges of two pieces of ``ids`` into a third, in transformers' order.

    The order is by the merged piece's score, then by the lengths of the halves, largest first; ties keep the order of
    the pieces, and within a piece the order of the halves' ids.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scores:
        merges = [
            (ids[left], ids[right], left, right)
            for i in range(1, len(piece))
            if (left := piece[:i]) in ids and (right := piece[i:]) in ids
        ]
        merges.sort()
        found += [(score, len(left), len(right), left, right) for _, _, left, right in merges]
    found.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for _, _, _, left, right in found]
