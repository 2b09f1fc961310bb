"""Markdown tables of a comparison's measurements."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.compare.contestants import Contestant

Round = dict[str, Any]
"""One process's measurements, by metric."""

SHORT, LONG = (32, 900), (32, 8000, 32000)
"""Contexts by default, and of `--long`."""

LONG_PROMPT = 2048
"""From here on a context's prompt is timed too, and its column is in seconds."""

BEGIN, END = "<!-- peers:begin -->", "<!-- peers:end -->"
NONE = "–"


@dataclass(frozen=True)
class Settings:
    """The lengths and repetitions of the measurements.

    Attributes:
        contexts: lengths of prompts after which decoding is timed.
        prefill: length of the prompts whose prefill is timed.
        room: context length to reserve, for peers that ask for it.
        repeats: timed prompts per process.
        steps: timed decode steps per context.
        rows: prompts of a batch; 1: no batch is measured.
        rounds: processes per contestant.
    """

    threads: int
    contexts: tuple[int, ...] = SHORT
    prefill: int = 512
    room: int = 1024
    repeats: int = 3
    steps: int = 32
    rows: int = 8
    rounds: int = 5

    def within(self, most: int) -> "Settings":
        """Without the contexts, all but the shortest, that a model of that many positions has no room for."""
        shortest = min(self.contexts)
        contexts = tuple(n for n in self.contexts if n == shortest or n + self.steps + 1 <= most)
        return replace(self, contexts=contexts, room=max(1024, self.prefill + 1, max(contexts) + self.steps + 1))


@dataclass(frozen=True)
class Agreement:
    """Agreement of a peer's logits with the float32 model: relative error, and equal greedy choices."""

    error: float
    same: int
    prompts: int


@dataclass
class Result:
    """The results of one contestant."""

    contestant: Contestant
    versions: dict[str, str] = field(default_factory=dict[str, str])
    rounds: list[Round] = field(default_factory=list[Round])
    agreement: Agreement | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Metric:
    """One column; `value` is None where a contestant does not give it."""

    head: str
    value: Callable[[Round], float | None]
    format: str
    more_is_better: bool = False

    def typical(self, result: Result) -> float | None:
        """The median over rounds."""
        values = [self.value(r) for r in result.rounds]
        known = [value for value in values if value is not None]
        return median(known) if known else None

    def gain(self, result: Result, peer: Result) -> float | None:
        """How many times as good as `peer`: the median of the ratios within a round; None where no round has both."""
        pairs = zip(result.rounds, peer.rounds, strict=False)
        ratios = [a / b for a, b in ((self.value(a), self.value(b)) for a, b in pairs) if a and b]
        if not ratios:
            return None
        return median(ratios) if self.more_is_better else 1 / median(ratios)


def metrics(settings: Settings) -> list[Metric]:
    """The columns."""
    speeds = [
        Metric(f"tok/s @{n}", lambda r, n=n: 1 / r[f"decode_s@{n}"], ".0f", more_is_better=True)
        for n in settings.contexts
    ]
    rows = settings.rows

    def batch(r: Round) -> float | None:
        return rows / r["batch_s"] if "batch_s" in r else None

    prompts = [
        Metric(f"prompt of {n}, s", lambda r, n=n: r[f"prompt_s@{n}"], ".1f")
        for n in settings.contexts
        if n >= LONG_PROMPT
    ]
    batches = [Metric(f"batch of {rows}, tok/s", batch, ".0f", more_is_better=True)] if rows > 1 else []
    return [
        *speeds,
        *prompts,
        *batches,
        Metric(f"prefill {settings.prefill}, ms", lambda r: r["prefill_s"] * 1e3, ".0f"),
        Metric("load, s", lambda r: r["load_s"], ".2f"),
        Metric("cold to first token, s", lambda r: r["cold_s"], ".2f"),
        Metric("peak, MB", lambda r: r["peak_bytes"] / 1e6, ".0f"),
        Metric("private after load, MB", _private_after_load, ".0f"),
        Metric("mapped after load, MB", _mapped_after_load, ".0f"),
        Metric("disk, MB", lambda r: r["disk_bytes"] / 1e6, ".0f"),
        Metric("installed, MB", _installed, ".0f"),
    ]


def _private_after_load(r: Round) -> float | None:
    """Over the bare process, without KV cache."""
    if "loaded_private_bytes" not in r:
        return None
    return (r["loaded_private_bytes"] - r["bare_private_bytes"] - r["loaded_kv_bytes"]) / 1e6


def _mapped_after_load(r: Round) -> float | None:
    """Over the bare process."""
    return (r["loaded_mapped_bytes"] - r["bare_mapped_bytes"]) / 1e6 if "loaded_mapped_bytes" in r else None


def _installed(r: Round) -> float | None:
    return None if r["installed_bytes"] is None else r["installed_bytes"] / 1e6


@dataclass
class ShapeReport:
    """All contestants on one checkpoint."""

    name: str
    title: str
    weights_per_token: int
    settings: Settings
    results: list[Result] = field(default_factory=list[Result])
    bandwidth: list[float] = field(default_factory=list[float])
    """GB/s, one per round."""

    @property
    def measured(self) -> list[Result]:
        return [result for result in self.results if result.rounds and not result.failure]

    def markdown(self) -> str:
        lines = [f"### {self.name}: {self.title}", "", *self._table(), *self._gains()]
        if self.bandwidth:
            low, high = min(self.bandwidth), max(self.bandwidth)
            typical, weights = median(self.bandwidth), self.weights_per_token / 1e6
            lines += ["", f"Reading bandwidth {typical:.0f} GB/s ({low:.0f}-{high:.0f} over rounds),"]
            lines.append(f"{weights:.0f} million weights per token.")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        columns = metrics(self.settings)
        lines = _head(["", *(column.head for column in columns), "share of bandwidth", "logits off by"])
        for result in self.results:
            cells = [NONE] * (len(columns) + 1) + [result.failure or NONE]
            if result in self.measured:
                cells = [_text(column.typical(result), column.format) for column in columns]
                cells += [self._share(result), _agreement(result)]
            lines.append(_line([result.contestant.label, *cells]))
        return lines

    def _gains(self) -> list[str]:
        """Ratios of each edgegen row to the best peer with the same bits per weight, by metric."""
        columns = metrics(self.settings)
        lines = ["", "How many times as good as the best peer of as many bits:", ""]
        lines += _head(["", *(column.head for column in columns)])
        for result in self.measured:
            if not result.contestant.is_peer:
                cells = [_gain(column, result, self._peers(result)) for column in columns]
                lines.append(_line([result.contestant.label, *cells]))
        return lines

    def _peers(self, result: Result) -> list[Result]:
        bits = result.contestant.bits
        return [peer for peer in self.measured if peer.contestant.is_peer and peer.contestant.bits == bits]

    def _share(self, result: Result) -> str:
        """Bytes of codes read per second at the shortest context, as a share of what the probe read."""
        if result.contestant.bits == 4:  # each peer keeps other matrices at more bits
            return NONE
        bytes_per_token = self.weights_per_token * result.contestant.bits / 8
        metric = f"decode_s@{min(self.settings.contexts)}"
        pairs = zip(result.rounds, self.bandwidth, strict=False)
        return f"{median(bytes_per_token / r[metric] / 1e9 / bandwidth for r, bandwidth in pairs):.0%}"


@dataclass
class Report:
    """One run of the comparison."""

    command: str
    machine: dict[str, Any]
    settings: Settings
    shapes: list[ShapeReport] = field(default_factory=list[ShapeReport])

    def markdown(self) -> str:
        return "\n\n".join([*(shape.markdown() for shape in self.shapes), "\n".join(self._notes())])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def _notes(self) -> list[str]:
        settings = self.settings
        versions = {v for shape in self.shapes for result in shape.results for v in result.versions.items()}
        return [
            f"```sh\n{self.command}\n```\n",
            f"{settings.threads} threads on {self.machine['cpus']} cores, {self.machine['cpu']},",
            f"medians of {settings.rounds} interleaved rounds, a process each. A ratio is the median of those within",
            "a round, and more is better. Versions: " + ", ".join(f"{name} {v}" for name, v in sorted(versions)) + ".",
        ]


def rewrite(page: Path, text: str) -> None:
    """Put `text` between the two markers of a Markdown page; ValueError when it has none."""
    old = page.read_text(encoding="utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise ValueError(f"{page} needs one line {BEGIN} and, below it, one line {END}")
    before, after = old[: old.index(BEGIN)], old[old.index(END) :]
    page.write_text(f"{before}{BEGIN}\n{text}\n{after}", encoding="utf-8")


def _gain(metric: Metric, result: Result, peers: list[Result]) -> str:
    known = [(value, peer) for peer in peers if (value := metric.typical(peer)) is not None]
    if not known or metric.typical(result) is None:
        return NONE
    choose = max if metric.more_is_better else min
    _, best = choose(known, key=lambda pair: pair[0])
    gain = metric.gain(result, best)
    return NONE if gain is None else f"{gain:.2f}× {best.contestant.name}"


def _agreement(result: Result) -> str:
    a = result.agreement
    return f"{a.error:.1%}, {a.same}/{a.prompts} same" if a else NONE


def _text(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _head(cells: list[str]) -> list[str]:
    return [_line(cells), f"|{'---|' * len(cells)}"]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
