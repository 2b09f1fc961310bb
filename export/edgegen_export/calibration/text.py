"""Calibration text: the token ids that quantization is calibrated on, sampled from the model or read from a file.

Text sampled from the model at temperature 1 calibrates as well as real text, and every model has it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import UsageError
from edgegen.evaluation.parity.row_threads import RowThreads
from edgegen.model.interfaces import Runner
from edgegen.sampling.random_numbers import uniform
from edgegen.system import read_regular_text
from edgegen.tokenizer import Tokenizer
from edgegen_export.parity.extent import LARGE, LARGER

SAMPLED = "sampled from the model"
ROWS_TOGETHER = 32
CACHE_BYTES = 2 << 30
"""Of the KV cache, which is on disk: models with many layers sample fewer rows at once."""
_REPORTS = 20
_BLOCK = 1024
"""Ids whose probabilities are summed first, to find the one that is drawn."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much text a model is calibrated on, in rows of ``length`` tokens: ``tokens`` for Hessians, ``few`` for
    magnitudes alone. Sampling a token, running it and its part of Hessians takes time for each parameter."""

    tokens: int
    few: int
    length: int

    @classmethod
    def of(cls, parameters: int) -> "Amount":
        """That of a model of so many parameters."""
        return OF_SMALL if parameters < LARGE else OF_LARGE if parameters < LARGER else OF_LARGER


OF_SMALL = Amount(tokens=8192, few=1024, length=256)
OF_LARGE = Amount(tokens=4096, few=1024, length=256)
OF_LARGER = Amount(tokens=3072, few=1024, length=256)


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationText:
    """``ids`` [rows, t], and where they come from."""

    ids: Ids
    source: str


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The first id of a sequence and the ids that end one, where the model has any."""

    begin: int | None
    ends: frozenset[int]

    @classmethod
    def of(cls, settings: Mapping[str, Any], vocab_size: int) -> "Boundaries":
        """Read them from a generation config."""

        def ids(key: str) -> list[int]:
            value = settings.get(key)
            listed = cast(list[object], value) if isinstance(value, list) else [value]
            return [i for i in listed if isinstance(i, int) and 0 <= i < vocab_size]

        begin, ends = ids("bos_token_id"), ids("eos_token_id")
        return cls(begin[0] if begin else None, frozenset(ends))

    def after(self, token: int) -> int | None:
        """The id forced after ``token``: after the end of a sequence the first id of the next one, else None."""
        return self.begin if token in self.ends and token != self.begin else None


def read_text(
    path: Path, tokenizer: Tokenizer, vocab_size: int, max_context: int, tokens: int, row: int = OF_SMALL.length
) -> CalibrationText:
    """The first ids of a text file, in rows of ``row``.

    Raises:
        UsageError: it cannot be read as UTF-8, or is shorter than one row.
    """
    length = min(row, max_context)
    try:
        text = read_regular_text(path, 64 * tokens)  # ids spell some characters each; no more is looked at
    except (OSError, ValueError) as error:
        raise UsageError(f"the calibration text {path} cannot be read: {error}") from error
    ids = [i for i in tokenizer.encode(text) if i < vocab_size][: max(tokens, length)]
    rows = len(ids) // length
    if not rows:
        raise UsageError(f"the calibration text {path} has {len(ids)} tokens; at least {length} are needed.")
    return CalibrationText(np.array(ids[: rows * length], np.int64).reshape(rows, length), "text")


def sample_text(
    runner: Runner[Any],
    bytes_per_token: int,
    boundaries: Boundaries,
    tokens: int,
    on_progress: Callable[[int, int], None],
    bytes_per_row: int = 0,
    row: int = OF_SMALL.length,
) -> CalibrationText:
    """Rows sampled from ``runner``'s model at temperature 1, with fixed seeds. Behind an end id a new one starts.

    ``bytes_per_token``: of the KV cache; ``bytes_per_row``: of fixed states; ``row``: tokens of one.
    """
    length = min(row, runner.max_context)
    rows = -(-tokens // length)
    together = rows_together(rows, bytes_per_token * length + bytes_per_row)
    ids, cache = np.empty((rows, length), np.int64), runner.new_cache()
    cache.reserve(together, length)
    for first in range(0, rows, together):
        part = ids[first : first + together]
        for row in range(len(part)):
            cache.truncate(row, 0)
        for done in _sample(runner, cache, part, first, boundaries):
            if done == length or done % max(1, length * rows // (_REPORTS * together)) == 0:
                on_progress(first * length + done * len(part), ids.size)
    return CalibrationText(ids, SAMPLED)


def rows_together(rows: int, row_bytes: int) -> int:
    """How many of the ``rows`` are sampled at once, if each keeps ``row_bytes``."""
    return max(1, min(ROWS_TOGETHER, rows, CACHE_BYTES // row_bytes))


def _sample(runner: Runner[Any], cache: Any, ids: Ids, seed: int, boundaries: Boundaries) -> Iterator[int]:
    """Fill ``ids`` [rows, t], a token of every row at a time; yields how many columns are done."""
    for row in range(len(ids)):
        chance = uniform(seed + row, 0)
        ids[row, 0] = int(chance * runner.vocab_size) if boundaries.begin is None else boundaries.begin
    with RowThreads() as threads:
        for at in range(1, ids.shape[1]):
            logits = runner.decode(cache, ids[:, at - 1 : at])[:, 0]
            chances = np.array([uniform(seed + row, at) for row in range(len(ids))])
            for row, drawn in enumerate(threads.map(_drawn, logits, chances)):
                following = boundaries.after(int(ids[row, at - 1]))
                ids[row, at] = drawn if following is None else following
            yield at + 1


def _drawn(logits: NDArray[np.float32], chances: NDArray[np.float64]) -> list[int]:
    """For each of logits [n, vocab] the id at its chance of the cumulated probabilities: first its block, for it takes
    long to cumulate all of them."""
    likely: NDArray[np.float32] = np.exp(logits - logits.max(axis=1, keepdims=True))
    vocab = likely.shape[1]
    starts: Ids = np.arange(0, vocab, _BLOCK, dtype=np.int64)
    blocks = np.add.reduceat(likely, starts, axis=1, dtype=np.float64).cumsum(axis=1)
    wanted = chances * blocks[:, -1]
    block = _first_above(blocks, wanted)
    before = np.where(block > 0, np.take_along_axis(blocks, np.maximum(block - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    first = block * _BLOCK
    inside = np.minimum(first[:, None] + np.arange(min(_BLOCK, vocab)), vocab - 1)
    sums = before[:, None] + np.take_along_axis(likely, inside, axis=1).cumsum(axis=1, dtype=np.float64)
    return np.minimum(first + _first_above(sums, wanted), vocab - 1).tolist()


def _first_above(sums: NDArray[np.float64], wanted: NDArray[np.float64]) -> Ids:
    """The first of each of sums [n, k] that is above ``wanted`` [n], or the last."""
    return np.minimum((sums <= wanted[:, None]).sum(axis=1), sums.shape[1] - 1)
