"""From measurements to a Markdown table."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.checkpoints import Shape
from bench.contestants import Contestant

Round = dict[str, Any]


@dataclass(frozen=True)
class Agreement:
    """How far a peer's logits are from the float32 reference: relative error, and equal first choices."""

    error: float
    same: int
    prompts: int


@dataclass
class Result:
    """What one contestant did."""

    contestant: Contestant
    versions: dict[str, str]
    rounds: list[Round] = field(default_factory=list[Round])
    agreement: Agreement | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Column:
    head: str
    value: Callable[[Round], float]
    format: str


@dataclass
class Report:
    """One run of the benchmark."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    shape: Shape
    results: list[Result] = field(default_factory=list[Result])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    bandwidth: list[float] = field(default_factory=list[float])
    """GB/s, one per round."""

    def markdown(self) -> str:
        columns = self._columns()
        measured = [result for result in self.results if result.rounds]
        heads = ["", *(column.head for column in columns), "share of bandwidth", "logits off by"]
        lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for result in measured:
            cells = [result.contestant.label]
            cells += [self._cell(column, result, measured[0]) for column in columns]
            cells += [f"{self._share(result):.0%}", self._agreement(result)]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, "", *self._notes(measured)])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def _columns(self) -> list[Column]:
        contexts: list[int] = self.settings["contexts"]
        return [
            *(Column(f"tok/s @{n}", lambda r, n=n: 1 / r[f"decode_s@{n}"], ".0f") for n in contexts),
            Column(f"prefill {self.settings['prefill']}, ms", lambda r: r["prefill_s"] * 1e3, ".0f"),
            Column("load, s", lambda r: r["load_s"], ".2f"),
            Column("first token, s", lambda r: r["import_s"] + r["load_s"] + r["first_prefill_s"], ".2f"),
            Column("peak, MB", lambda r: r["peak_bytes"] / 1e6, ".0f"),
        ]

    def _cell(self, column: Column, result: Result, base: Result) -> str:
        """The median over rounds and, below the first line, the median ratio to the first line's round."""
        text = format(median(map(column.value, result.rounds)), column.format)
        if result is base:
            return text
        pairs = zip(result.rounds, base.rounds, strict=False)
        return f"{text} ({median(column.value(a) / column.value(b) for a, b in pairs):.2f}×)"

    def _share(self, result: Result) -> float:
        """Weight bytes read per second at the shortest context, as a share of what the probe read."""
        bytes_per_token = self.shape.weights_per_token * result.contestant.weight_bytes
        metric = f"decode_s@{min(self.settings['contexts'])}"
        pairs = zip(result.rounds, self.bandwidth, strict=False)
        return median(bytes_per_token / r[metric] / 1e9 / bandwidth for r, bandwidth in pairs)

    def _agreement(self, result: Result) -> str:
        a = result.agreement
        return f"{a.error:.1%}, {a.same}/{a.prompts} same" if a else "-"

    def _notes(self, measured: list[Result]) -> list[str]:
        speed = self._columns()[0]
        notes = [
            f"{self.machine['cpu']}, {self.settings['threads']} threads, {self.machine['system']}.",
            f"Medians of {self.settings['rounds']} rounds; in brackets the median ratio to the first line in a round.",
        ]
        if self.bandwidth:
            notes.append(
                f"Reading bandwidth: {median(self.bandwidth):.0f} GB/s"
                f" ({min(self.bandwidth):.0f}-{max(self.bandwidth):.0f});"
                f" weights per token: {self.shape.weights_per_token / 1e6:.0f} million."
            )
        for result in measured:
            rates = [speed.value(r) for r in result.rounds]
            versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
            spread = f"{speed.head} {min(rates):.0f}-{max(rates):.0f} over rounds"
            notes.append(f"{result.contestant.label}: {spread}; {versions}.")
        notes += [f"{r.contestant.label}: FAILED: {r.failure}" for r in self.results if r.failure]
        notes += [f"{label}: not installed: {command}" for label, command in self.absent.items()]
        return [f"- {note}" for note in notes]
