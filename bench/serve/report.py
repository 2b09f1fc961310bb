"""The table of a measurement of servers: percentiles of latency, and throughput."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

from bench.serve.load import Answer

HEADS = ("clients", "server", "first token p50, ms", "p99", "between tokens p50, ms", "p99", "longest", "tokens/s")


@dataclass
class Measured:
    """A server under a number of clients: all answers, and the throughput of each round in tokens/s."""

    server: str
    clients: int
    answers: list[Answer] = field(default_factory=list[Answer])
    throughputs: list[float] = field(default_factory=list[float])
    failure: str | None = None

    def cells(self) -> list[str]:
        """Percentiles are over the answers of all rounds, throughput is the median of the rounds."""
        head = [str(self.clients), self.server]
        if self.failure is not None or not self.answers:
            return [*head, self.failure or "–", *["–"] * 5]
        first = [answer.first for answer in self.answers]
        gaps = [gap for answer in self.answers for gap in answer.gaps]
        figures = [f"{1e3 * percentile(values, at):.1f}" for values in (first, gaps) for at in (50, 99)]
        return [*head, *figures, f"{1e3 * percentile(gaps, 100):.1f}", f"{median(self.throughputs):.0f}"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], at: float) -> float:
    """The smallest value that ``at`` percent of the values do not exceed; NaN of no values."""
    return float(np.percentile(values, at, method="inverted_cdf")) if values else float("nan")


def table(rows: Sequence[Measured]) -> str:
    """In Markdown, by the number of clients."""
    ordered = sorted(rows, key=lambda row: row.clients)
    lines = [_line(HEADS), "|---:|---|" + "---:|" * (len(HEADS) - 2), *(_line(row.cells()) for row in ordered)]
    return "\n".join(lines)


def table_of(heads: Sequence[str], texts: int, rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; the first columns are ``texts``, the others numbers."""
    ruler = "|" + "---|" * texts + "---:|" * (len(heads) - texts)
    return "\n".join([_line(heads), ruler, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"
