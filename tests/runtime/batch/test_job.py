"""A batch's lines, answered by a model: in order, each by itself, in bounded memory, whatever becomes of any."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.batch.input import InputLine
from edgegen.batch.job import IN_FLIGHT, BatchJob
from edgegen.batch.output import FileOutput
from edgegen.batch.settings import BatchSettings
from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.llm import LLM
from edgegen.model.kernels import kernel_library
from edgegen.options.engine import EngineOptions
from tests.runtime.models import FakeGraphs, InterruptAt, RandomGraphs, fake_llm
from tests.runtime.models import digest_of as next_id_of

POISON = 13
"""After this id the fake model's logits are NaN, or worse."""


class PoisonedGraphs(RandomGraphs):
    """Has no answer to some prompts."""

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        if ids[0] == POISON:
            return np.full(self.vocab_size, np.nan, np.float32)
        if ids[0] == POISON + 1:
            raise MemoryError("too much for this machine")
        return super().logits(ids)


def lines(*contents: Any) -> list[InputLine]:
    texts = [content if isinstance(content, bytes) else json.dumps(content).encode() for content in contents]
    return [InputLine(number, 0, text) for number, text in enumerate(texts, 1)]


def answers(job: BatchJob, *contents: Any) -> list[Any]:
    asked = lines(*contents)
    entries = [*job.answer(asked)]
    assert [entry.digest for entry in entries] == [line.digest for line in asked]
    return [json.loads(entry.record) for entry in entries]


def settings(**options: Any) -> BatchSettings:
    return BatchSettings("fake", {"max_new_tokens": 5, **options})


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", PoisonedGraphs())


def test_each_answer_is_that_of_the_line_alone_and_in_its_place(llm: LLM) -> None:
    numbers = range(20, 120)
    asked = [{"prompt": [n], "max_new_tokens": 1 + n * 7 % 10, "seed": n} for n in numbers]
    found = answers(BatchJob(llm, settings()), *asked)
    assert [record["line"] for record in found] == [*range(1, 101)]
    for n, record in zip(numbers, found, strict=True):
        alone = llm.generate([n], max_new_tokens=1 + n * 7 % 10, seed=n)
        assert (record["text"], tuple(record["token_ids"])) == (alone.text, alone.token_ids)


def test_a_line_that_fails_fails_alone(llm: LLM) -> None:
    good = {"prompt": [40], "id": "good"}
    found = answers(
        BatchJob(llm, settings()),
        good,
        b"nonsense",
        good,
        {"prompt": [POISON]},
        {"prompt": [POISON + 1], "id": "worse"},
        {"prompt": [1] * 600},
        {"prompt": [100_000]},
        {"prompt": "a", "grammar": "start: missing"},
        {"prompt": "a", "response_format": {"type": "no"}},
        {"prompt": "a", "suppress_tokens": [260]},
        good,
    )
    assert [record.get("id") for record in (found[0], found[2], found[-1])] == ["good"] * 3
    assert found[0] | {"line": 0} == found[2] | {"line": 0} == found[-1] | {"line": 0}
    errors = [record["error"] for record in found if "error" in record]
    assert [error["code"] for error in errors] == [
        "invalid_json",
        "server_error",
        "server_error",
        "context_length_exceeded",
        *["invalid_request"] * 4,
    ]
    expected = [
        "line 2: not JSON: Expecting value at character 1",
        "line 4: ",
        "line 5: too much for this machine",
        "line 6: the prompt has 600 tokens, but this model's context is 512: shorten it.",
        "line 7: token id 100000 of the prompt is outside the model's vocabulary of 260.",
        "line 8: ",
        "line 9: ",
        "line 10: suppress_tokens: token id 260 is outside the model's vocabulary of 260",
    ]
    for error, message in zip(errors, expected, strict=True):
        assert error["message"].startswith(message)


def test_conversations(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    (record,) = answers(BatchJob(llm, settings()), {"messages": messages})
    assert record["text"] == llm.chat(messages, max_new_tokens=5).text


class TestSeeds:
    def test_a_line_draws_with_a_seed_that_is_its_numbers(self, llm: LLM) -> None:
        asked = lines(*[{"prompt": [40]}] * 6)
        job = BatchJob(llm, settings(seed=3))
        whole = [entry.record for entry in job.answer(asked)]
        assert [entry.record for entry in job.answer(asked[4:])] == whole[4:]
        found = [json.loads(record) for record in whole]
        assert len({record["seed"] for record in found}) == 6
        assert len({tuple(record["token_ids"]) for record in found}) == 6
        other = BatchJob(llm, settings(seed=4))
        assert not {json.loads(e.record)["seed"] for e in other.answer(asked)} & {r["seed"] for r in found}

    def test_a_line_may_have_its_own_or_need_none(self, llm: LLM) -> None:
        own, greedy, beams = answers(
            BatchJob(llm, settings(seed=3)),
            {"prompt": [40], "seed": 9},
            {"prompt": [40], "do_sample": False},
            {"prompt": [40], "num_beams": 2},
        )
        assert [record["seed"] for record in (own, greedy, beams)] == [9, None, None]

    def test_without_one_every_draw_is_new(self, llm: LLM) -> None:
        found = answers(BatchJob(llm, settings(temperature=1.0)), *[{"prompt": [40]}] * 3)
        assert len({record["seed"] for record in found}) == 3


class TestSettings:
    def test_a_fingerprint_is_all_that_answers_depend_on(self, int8_bundle: Bundle) -> None:
        first = settings(temperature=0.5)
        found = first.fingerprint(int8_bundle)
        assert found == {
            "model": int8_bundle.digest,
            "variant": "int8-kv-int8",
            "kernels": "stock" if kernel_library() is None else "own",
            "max_new_tokens": "5",
            "temperature": "0.5",
        }
        float32 = BatchSettings("fake", first.options, EngineOptions(kv="float32", threads=3))
        assert float32.fingerprint(int8_bundle) == found | {"variant": "int8"}
        stock = BatchSettings("fake", first.options, EngineOptions(kernels="stock"))
        assert stock.fingerprint(int8_bundle) == found | {"kernels": "stock"}

    def test_options_that_the_bundle_contradicts_are_refused_at_once(self, llm: LLM) -> None:
        with pytest.raises(UsageError, match="'no_such' is not an option"):
            BatchJob(llm, settings(no_such=1))


class TestBounds:
    def test_lines_are_read_as_they_are_needed(self, llm: LLM) -> None:
        read = list[int]()

        def reading() -> Iterator[InputLine]:
            for line in lines(*[{"prompt": [40]}] * 200):
                read.append(line.number)
                yield line

        for done, _ in enumerate(BatchJob(llm, settings()).answer(reading())):
            assert len(read) <= done + 8 * IN_FLIGHT

    @pytest.mark.release
    def test_an_input_of_any_length_takes_no_memory(self, llm: LLM, tmp_path: Path) -> None:
        """200 000 lines, of which most are errors: what is held does not grow with them."""
        held = list[int]()

        def reading() -> Iterator[InputLine]:
            for number in range(1, 200_001):
                if number == 20_000:
                    tracemalloc.start()
                elif number == 200_000:
                    held.append(tracemalloc.get_traced_memory()[0])
                good = number % 2000 == 0
                yield InputLine(number, 0, b'{"prompt": [40], "max_new_tokens": 2}' if good else b"x")

        try:
            with FileOutput(tmp_path / "out.jsonl", {}) as output:
                for entry in BatchJob(llm, settings()).answer(output.unanswered(reading())):
                    output.append(entry)
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                output.finish()
                assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        finally:
            tracemalloc.stop()
        assert output.answered == 200_000
        assert held[0] < 1 << 20, held  # the output has 40 MB

    def test_ctrl_c_ends_what_is_in_flight(self, tmp_path: Path) -> None:
        graphs = FakeGraphs(next_id_of)
        llm = fake_llm(tmp_path / "fake", graphs)
        graphs.before_run = InterruptAt(20, graphs)
        job = BatchJob(llm, settings(max_new_tokens=400))
        with pytest.raises(KeyboardInterrupt) as caught:  # and with it all running requests
            list(job.answer(lines(*[{"prompt": [40]}] * 100)))
        runs = len(graphs.runs)
        assert llm.generate([40], max_new_tokens=3).token_ids  # at once: nothing is before it
        assert len(graphs.runs) < runs + 20
        assert caught.tb
