"""The calibration text: what a model samples, and what a file says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import UsageError
from edgegen.model.interfaces import Runner
from edgegen.tokenizer import Tokenizer
from edgegen_export.calibration.text import OF_SMALL, Amount, Boundaries, read_text, sample_text
from edgegen_export.parity.extent import LARGE
from tests.runtime.models import byte_tokenizer

LENGTH = OF_SMALL.length

NextLogits = Callable[[int], NDArray[np.float32]]


class FakeRunner:
    """Logits of the next token depend on the last one only."""

    vocab_size = 5

    def __init__(self, logits: NextLogits, max_context: int = 512) -> None:
        self._logits, self.max_context = logits, max_context
        self.rows = list[int]()

    def new_cache(self) -> "FakeRunner":
        return self

    def reserve(self, slots: int, length: int) -> None:
        assert length <= self.max_context

    def truncate(self, slot: int, length: int) -> None:
        assert length == 0

    def decode(self, cache: "FakeRunner", ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self.rows.append(len(ids))
        return np.array([[self._logits(int(row[0]))] for row in ids])


def sampled(logits: NextLogits, boundaries: Boundaries, tokens: int = 4096, **options: int) -> NDArray[np.int64]:
    runner = cast(Runner[Any], FakeRunner(logits, **options))
    heard = list[tuple[int, int]]()
    text = sample_text(runner, 1, boundaries, tokens, lambda done, total: heard.append((done, total)))
    assert heard[-1] == (text.ids.size, text.ids.size)
    assert heard == sorted(heard)
    assert text.source == "sampled from the model"
    return text.ids


def test_ids_are_drawn_at_temperature_one() -> None:
    chances = np.array([0.1, 0.2, 0.05, 0.6, 0.05])
    ids = sampled(lambda _: np.log(chances).astype(np.float32), Boundaries(None, frozenset()), 20480)
    assert ids.shape == (80, LENGTH)
    found = np.bincount(ids[:, 1:].ravel(), minlength=5) / ids[:, 1:].size
    np.testing.assert_allclose(found, chances, atol=0.012)
    assert len(np.unique(ids, axis=0)) == 80  # no two rows alike


def test_the_same_model_says_the_same() -> None:
    def logits(last: int) -> NDArray[np.float32]:
        return np.sin(np.arange(5, dtype=np.float32) * (last + 1))

    first, again = (sampled(logits, Boundaries(1, frozenset())) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_texts_begin_where_texts_end() -> None:
    flat = np.zeros(5, np.float32)
    ids = sampled(lambda _: flat, Boundaries(0, frozenset({3, 4})))
    assert (ids[:, 0] == 0).all()
    after = ids[:, 1:][np.isin(ids[:, :-1], (3, 4))]
    assert after.size
    assert (after == 0).all()
    same = sampled(lambda _: flat, Boundaries(0, frozenset({0})))  # one token for both: nothing is to follow it
    assert len(np.unique(same[:, 1:][same[:, :-1] == 0])) == 5


def test_rows_are_as_long_as_the_model_allows() -> None:
    assert sampled(lambda _: np.zeros(5, np.float32), Boundaries(0, frozenset()), 100, max_context=24).shape == (5, 24)


def test_a_large_cache_takes_fewer_rows_at_once() -> None:
    runner = FakeRunner(lambda _: np.zeros(5, np.float32))
    sample_text(cast(Runner[Any], runner), 1 << 22, Boundaries(0, frozenset()), 8 * LENGTH, lambda done, total: None)
    assert set(runner.rows) == {2}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Boundaries(None, frozenset())),
        ({"bos_token_id": 3, "eos_token_id": 4}, Boundaries(3, frozenset({4}))),
        ({"bos_token_id": [3], "eos_token_id": [4, 1, 99]}, Boundaries(3, frozenset({1, 4}))),
        ({"bos_token_id": None, "eos_token_id": -1}, Boundaries(None, frozenset())),
    ],
)
def test_boundaries_are_ids_that_the_model_has(settings: dict[str, Any], expected: Boundaries) -> None:
    assert Boundaries.of(settings, 50) == expected


def test_a_file_is_cut_into_rows(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(byte_tokenizer(tmp_path / "tokenizer.json"))
    path = tmp_path / "text.txt"
    path.write_text("abcdefgh" * 100, encoding="utf-8-sig")
    text = read_text(path, tokenizer, 260, 64, tokens=256)
    assert text.source == "text"
    assert text.ids.shape == (4, 64)
    assert bytes(text.ids.ravel().tolist()) == b"abcdefgh" * 32


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"too short", "has 9 tokens; at least 64 are needed"),
        (b"\xff\xfe\xff" * 99, "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    tokenizer = Tokenizer.from_file(byte_tokenizer(tmp_path / "tokenizer.json"))
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_text(path, tokenizer, 260, 64, tokens=256)


def test_large_models_are_calibrated_on_less_text() -> None:
    assert Amount.of(LARGE - 1) == Amount(tokens=8192, few=1024, length=256)
    assert Amount.of(LARGE) == Amount(tokens=4096, few=1024, length=256)


def test_rows_are_as_long_as_asked_for() -> None:
    runner = cast(Runner[Any], FakeRunner(lambda _: np.zeros(5, np.float32)))
    text = sample_text(runner, 1, Boundaries(None, frozenset()), 512, lambda done, total: None, row=128)
    assert text.ids.shape == (4, 128)
