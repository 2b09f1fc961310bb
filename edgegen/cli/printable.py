"""Printable text: shows what a bundle says of itself without the control characters a terminal would obey."""


def printable(text: str) -> str:
    """``text`` in one line, each character that is not printable written as an escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """As :func:`printable`, of each line."""
    return "\n".join(map(printable, text.split("\n")))
