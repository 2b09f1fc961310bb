"""The model card of a bundle: what its makers say in a line of what the model is for."""

import re

from edgegen.bundle.bundle import Bundle
from edgegen.system import read_regular

_CARD, _MOST_BYTES, _MOST_CHARACTERS = "README.md", 65_536, 300
_FRONT = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"^edgegen_note: +(\S.*)$", re.MULTILINE)


def usage_note(bundle: Bundle) -> str | None:
    """Return ``edgegen_note`` of the model card's front matter, such as "a story-teller: begin a story"; None without
    one. It is text of strangers, in one line."""
    if _CARD not in bundle.manifest.files:
        return None
    try:
        card = read_regular(bundle.file(_CARD))[:_MOST_BYTES].decode("utf-8", "replace")
    except OSError:
        return None
    front = _FRONT.match(card)
    note = _NOTE.search(front[1]) if front else None
    if note is None:
        return None
    text = note[1].strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":  # as YAML wants a text with a colon
        text = text[1:-1].replace("''", "'")
    return text[:_MOST_CHARACTERS] or None
