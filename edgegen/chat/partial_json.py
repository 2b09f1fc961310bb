"""Completes JSON that was cut off, as far as it can be read."""

import json
from collections import deque
from typing import Any

_TRIED = 4
"""Places before the end at which a value may have ended, the last ones."""


def completed_json(text: str) -> Any:
    """The value of a JSON text, or of one that ends too early; None where it is not the beginning of JSON.

    A string that was cut goes up to the cut. A key without a value, and half a number or word, are left out.
    """
    scan = _Scan()
    places = scan.read(text)
    ends = [text[: len(text) - scan.escaped] + '"' if scan.in_string else text]
    cut = text.rfind("\\u")
    if scan.in_string and cut >= 0 and len(text) - cut < 6:  # half of an escape such as \u12
        ends.append(text[:cut] + '"')
    ends += [text[:place] for place in reversed(places)]
    for end in ends:
        closed = _Scan()
        closed.read(end)
        try:
            return json.loads(end + "".join(reversed(closed.closers)))
        except (ValueError, RecursionError):
            continue
    return None


class _Scan:
    """Where a text stands in JSON: inside a string, and inside which objects and lists."""

    def __init__(self) -> None:
        self.closers = list[str]()
        self.in_string = self.escaped = False

    def read(self, text: str) -> list[int]:
        """The last places at which a value may have ended."""
        places = deque[int](maxlen=_TRIED)
        for at, character in enumerate(text):
            if self.in_string:
                if self.escaped:
                    self.escaped = False
                elif character == "\\":
                    self.escaped = True
                elif character == '"':
                    self.in_string = False
            elif character == '"':
                self.in_string = True
            elif character in "{[":
                self.closers.append("}" if character == "{" else "]")
                places.append(at + 1)
            elif character in "}]":
                if self.closers:
                    self.closers.pop()
                places.append(at + 1)
            elif character == ",":
                places.append(at)
        return list(places)
