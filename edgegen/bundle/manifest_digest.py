"""The SHA-256 that ``edgegen.json`` has of its own text, in its last line: of its bytes with zeros in that place."""

import hashlib
import re
from typing import NamedTuple

KEY = "sha256"
_ZEROS = "0" * 64
_PLACE = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n\Z')


class ManifestDigest(NamedTuple):
    """``found``: what the text hashes to, in hex; ``stated``: what it says itself, None if it says nothing."""

    found: str
    stated: str | None

    @classmethod
    def of(cls, content: bytes) -> "ManifestDigest":
        """Of the bytes of ``edgegen.json``."""
        place = _PLACE.search(content)
        if place is None:
            return cls(hashlib.sha256(content).hexdigest(), None)
        start, end = place.span(1)
        found = hashlib.sha256(content[:start] + _ZEROS.encode() + content[end:]).hexdigest()
        return cls(found, place[1].decode())

    @property
    def differs(self) -> bool:
        """Whether the text is not what was written."""
        return self.stated not in (None, self.found)


def with_digest(text: str) -> str:
    """``text``, an indented JSON object, with the hash as its last key."""
    sealed = text.rstrip().removesuffix("\n}") + f',\n "{KEY}": "{_ZEROS}"\n}}\n'
    head, _, tail = sealed.rpartition(_ZEROS)
    return head + hashlib.sha256(sealed.encode()).hexdigest() + tail
