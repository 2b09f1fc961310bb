"""Patterns of JSON schemas: ECMA-262's regular expressions, as llguidance's engine reads them."""

import re

_SPELLED = "\b\f\n\r\t"
"""Control characters with an escape of their own in JSON."""

_TOKEN = re.compile(
    r"\\(?:u\{(?P<braced_u>[0-9A-Fa-f]+)\}|x\{(?P<braced_x>[0-9A-Fa-f]+)\}"
    r"|u(?P<u>[0-9A-Fa-f]{4})|U(?P<long>[0-9A-Fa-f]{8})|x(?P<x>[0-9A-Fa-f]{2})|.)|.",
    re.DOTALL,
)

_OUTSIDE_CLASS = {".": r"[^\n\r\x{2028}\x{2029}]", r"\S": r"[^\s\x{FEFF}]"}
_IN_CLASS = {"[": r"\[", "&": r"\&", "~": r"\~"}
_IN_NEGATED_CLASS = _IN_CLASS | {r"\s": r"\s\x{FEFF}"}
"""Classes that ECMA-262 means by these tokens, where llguidance means others."""


def control_character(text: str) -> str | None:
    """The first control character of ``text`` that JSON would spell ``\\u…``, as such, or None."""
    for letter in text:
        if _is_control(ord(letter)):
            return f"U+{ord(letter):04X}"
    return None


def ecma_pattern(pattern: str) -> tuple[str, str | None]:
    """The pattern as llguidance writes it, and what of it cannot be enforced, if something.

    llguidance drops a control character for which JSON has no escape of its own, instead of failing there,
    unless a class has others.
    """
    written: list[str] = []
    problem: str | None = None
    tokens = [(token[0], _code_point(token)) for token in _TOKEN.finditer(pattern)]
    at = 0
    while at < len(tokens):
        text, code = tokens[at]
        if text == "[":
            end = _end_of_class(tokens, at)
            body = tokens[at + 1 : end]
            members = [t for t, _ in body]
            codes = {code for member, code in body if member != "-"}
            if end == len(tokens) or members in ([], ["^"]):
                problem = problem or "a class that is empty or has no end"
            elif len(codes) == 1 and _is_control(*codes):
                problem = problem or f"the control character U+{body[0][1]:04X}"
            if "--" in "".join(members):
                problem = problem or "'--' in a class"
            others = _IN_NEGATED_CLASS if members and members[0] == "^" else _IN_CLASS
            written += ["[", *(others.get(member, member) for member in members), "]"]
            at = end + 1
            continue
        if _is_control(code):
            problem = problem or f"the control character U+{code:04X}"
        written.append(_OUTSIDE_CLASS.get(text, text))
        at += 1
    return "".join(written), problem


def _end_of_class(tokens: list[tuple[str, int]], begin: int) -> int:
    for at in range(begin + 1, len(tokens)):
        if tokens[at][0] == "]":
            return at
    return len(tokens)


def _code_point(token: re.Match[str]) -> int:
    """The code point that a token stands for; -1 where it is no one character."""
    digits = next((group for group in token.groups() if group), None)
    if digits:
        return int(digits, 16)
    text = token[0]
    if len(text) == 1:
        return ord(text)
    return {"\\v": 0x0B, "\\a": 0x07}.get(text, -1)


def _is_control(code: int) -> bool:
    return code == 0x7F or (0 <= code < 0x20 and chr(code) not in _SPELLED)
