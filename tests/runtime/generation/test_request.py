"""Request: when it has ended, whatever order the news come in."""

from queue import Empty

import pytest

from edgegen.engine.finish import LIMIT, StopMatch
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams, Update
from edgegen.generation.request import Answer, Request
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.stopping.text_watcher import TextWatcher


class BrokenWatcher(TextWatcher):
    """Fails when it releases its text."""

    def finish(self) -> StopMatch | None:
        raise ValueError("half a character")


def sequence() -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    return Sequence([1], SequenceParams(1, 2, LogitsPipeline(), sampler, lambda ids: None))


def request_of(*watchers: TextWatcher) -> tuple[Request, list[Sequence]]:
    rows = [sequence() for _ in watchers]
    answers = [Answer(row, watcher) for row, watcher in zip(rows, watchers, strict=True)]
    return Request(SequenceGroup(rows), answers, None), rows


def test_a_request_ends_when_its_last_answer_is_noted() -> None:
    """Answers that end in one step are noted one after the other, and the reader is another thread."""
    request, rows = request_of(*(TextWatcher(None, (), ()) for _ in range(3)))
    for row in rows:
        row.ids.append(7)
        row.finish = LIMIT
    for row in rows:
        assert not request.finished
        with pytest.raises(Empty):
            request.mail._items.get_nowait()  # pyright: ignore[reportPrivateUsage]
        request.group.emit(Update(row, (7,)))
    assert request.finished
    assert request.mail.take() is None
    assert [choice.token_ids for choice in request.result().choices] == [(7,)] * 3


def test_a_result_that_has_been_read_stays_as_it_is() -> None:
    """The engine may be at a last token while its reader cancels."""
    request, (row,) = request_of(TextWatcher(None, (), ()))
    request.group.emit(Update(row, (7,)))
    request.group.cancel()
    request.end()
    assert request.result().token_ids == (7,)
    request.group.emit(Update(row, (8,)))
    assert request.result().token_ids == (7,)


def test_an_answer_that_cannot_be_told_fails_its_request_and_ends_the_other_answers() -> None:
    request, rows = request_of(BrokenWatcher(None, (), ()), TextWatcher(None, (), ()))
    rows[0].finish = LIMIT
    request.group.emit(Update(rows[0], (7,)))
    assert isinstance(request.mail.take(), ValueError)
    assert request.finished
    assert request.group.finished
    with pytest.raises(ValueError, match="half a character"):
        request.result()
