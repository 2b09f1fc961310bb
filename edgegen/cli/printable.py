"""Text for a terminal: without the control characters that it would obey, and rows of a table as lines."""

from collections.abc import Container, Sequence


def printable(text: str) -> str:
    """``text`` in one line, each character that is not printable written as an escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """As :func:`printable`, of each line."""
    return "\n".join(map(printable, text.split("\n")))


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Rows of a table as lines: the columns ``left`` begin where their column does, others end where theirs does."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([f"{cell:{'<' if n in left else '>'}{widths[n]}}" for n, cell in enumerate(row)] for row in rows)
    return ["  ".join(line).rstrip() for line in lines]
