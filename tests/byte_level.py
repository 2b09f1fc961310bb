"""GPT-2's way of writing bytes as letters, for the tokenizers that tests make; written apart from the runtime's own."""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

LETTER_OF_BYTE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(0x100 + n) for n, byte in enumerate(_OTHERS)}
"""Byte → letter, in GPT-2's order: the printable bytes as themselves, then the others from U+0100 on."""
