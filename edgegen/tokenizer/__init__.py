"""Tokenizers: text to token ids and back, by the tokenizers library or by a compiled form of ``tokenizer.json``."""

from edgegen.tokenizer.backend import AddedToken, RespelledTokenizer
from edgegen.tokenizer.compiled_format import COMPILED
from edgegen.tokenizer.library import LibraryBackend
from edgegen.tokenizer.tokenizer import StreamingDetokenizer, Tokenizer, looks_like_control, secret_spelling

__all__ = [
    "COMPILED",
    "AddedToken",
    "LibraryBackend",
    "RespelledTokenizer",
    "StreamingDetokenizer",
    "Tokenizer",
    "looks_like_control",
    "secret_spelling",
]
