"""Questions and pairs from JSON lines: the shapes of published files, and everything that can be wrong in a line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import UsageError
from edgegen.evaluation.items import Pair, Question, read_pairs, read_questions

HELLASWAG: dict[str, Any] = {
    "ind": 24,
    "activity_label": "Roof shingle removal",
    "ctx_a": "A man is sitting on a roof.",
    "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he",
    "endings": ["is using wrap to wrap a pair of skis.", "is ripping level tiles off.", "holds a cube."],
    "label": "2",
}
BLIMP = {"sentence_good": "Whose hat should Tonya wear?", "sentence_bad": "Whose should Tonya wear hat?", "UID": "x"}
QUESTION = {"ctx": "One and one is", "endings": ["two.", "three."], "label": 0}


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


class TestShapes:
    def test_hellaswags_own(self) -> None:
        (question,) = read_questions(lines(HELLASWAG), "f").whole()
        assert question == Question(HELLASWAG["ctx"], tuple(HELLASWAG["endings"]), 2, 1)

    @pytest.mark.parametrize("context", ["ctx", "context", "query"])
    @pytest.mark.parametrize("choices", ["endings", "choices"])
    @pytest.mark.parametrize("answer", ["label", "gold"])
    def test_every_mixture_of_names(self, context: str, choices: str, answer: str) -> None:
        found = read_questions(lines({context: "", choices: ["a", "b"], answer: 1}), "f").whole()
        assert found == (Question("", ("a", "b"), 1, 1),)

    def test_blimps_own(self) -> None:
        found = read_pairs(lines(BLIMP), "f").whole()
        assert found == (Pair(BLIMP["sentence_good"], BLIMP["sentence_bad"], 1),)

    def test_lines_keep_their_numbers_and_blank_ones_are_skipped(self) -> None:
        text = "\ufeff" + lines(QUESTION) + "\n \r\n" + lines(QUESTION).replace("\n", "\r\n")
        assert [question.line for question in read_questions(text, "f").whole()] == [1, 4]

    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
    def test_any_text_comes_back_however_json_writes_it(self, text: str) -> None:
        record = {"sentence_good": text, "sentence_bad": text[::-1]}
        for ascii_only in (True, False):
            assert read_pairs(json.dumps(record, ensure_ascii=ascii_only), "f").whole() == (Pair(text, text[::-1], 1),)


class TestFaults:
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"label": 2}, "label or gold: 2 is not one of the 2 choices, which are counted from 0"),
            ({"label": -1}, "label or gold: -1 is not one of the 2 choices, which are counted from 0"),
            ({"label": "7"}, "label or gold: 7 is not one of the 2 choices, which are counted from 0"),
            ({"label": ""}, "label or gold: the number of a choice expected, found ''"),
            ({"label": True}, "label or gold: the number of a choice expected, found True"),
            ({"label": 1.0}, "label or gold: the number of a choice expected, found 1.0"),
            ({"label": None}, "label or gold: the number of a choice expected, found None"),
            ({"label": ...}, "no label or gold, found ['ctx', 'endings']"),
            ({"gold": 0}, "label and gold would say the same: keep one of them"),
            ({"query": ""}, "ctx and query would say the same: keep one of them"),
            ({"ctx": ...}, "no ctx or query or context, found ['endings', 'label']"),
            ({"ctx": 3}, "ctx or query or context: a text expected, found 3"),
            ({"ctx": "\ud83d"}, "ctx or query or context is no Unicode text: it has half a character"),
            ({"endings": ["two."]}, "endings or choices: two texts or more expected, found ['two.']"),
            ({"endings": "two."}, "endings or choices: two texts or more expected, found 'two.'"),
            ({"endings": ...}, "no endings or choices, found ['ctx', 'label']"),
            ({"endings": ["two.", " "]}, "choice 1 is empty"),
            ({"endings": ["two.", None]}, "choice 1: a text expected, found None"),
        ],
    )
    def test_of_a_question(self, change: dict[str, Any], problem: str) -> None:
        record = {key: value for key, value in {**QUESTION, **change}.items() if value is not ...}
        records = read_questions(lines(QUESTION, record), "some.jsonl")
        assert records.problems == (f"some.jsonl, line 2: {problem}.",)
        assert len(records.items) == 1

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ('{"sentence_good": "a"', "not JSON: Expecting ',' delimiter at character 22"),
            ("[1]", "a JSON object expected, found [1]"),
            ("[" * 100_000, "not JSON: maximum recursion depth exceeded"),
            ("9" * 5000, "not JSON: Exceeds the limit"),
            ('{"sentence_good": "a"}', "no sentence_bad, found ['sentence_good']"),
            ('{"sentence_good": "", "sentence_bad": "b"}', "sentence_good is empty"),
        ],
    )
    def test_of_a_pair(self, line: str, problem: str) -> None:
        (found,) = read_pairs(line, "some.jsonl").problems
        assert found.startswith(f"some.jsonl, line 1: {problem}")

    def test_all_of_them_are_told_at_once(self) -> None:
        records = read_questions(lines({"ctx": 3, "label": "x"}, [], QUESTION), "some.jsonl")
        assert records.problems == (
            "some.jsonl, line 1: ctx or query or context: a text expected, found 3.",
            "some.jsonl, line 1: no endings or choices, found ['ctx', 'label'].",
            "some.jsonl, line 1: label or gold: the number of a choice expected, found 'x'.",
            "some.jsonl, line 2: a JSON object expected, found [].",
        )
        with pytest.raises(UsageError, match=r"4 problems:\n  - some.jsonl, line 1: ctx"):
            records.whole()

    def test_but_not_of_a_file_of_another_kind(self) -> None:
        problems = read_pairs("a story\n" * 1000, "some.txt").problems
        assert len(problems) == 11
        assert problems[-1] == "some.txt has 990 more problems."

    @pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
    def test_an_empty_file_is_one(self, text: str) -> None:
        assert read_questions(text, "f").problems == ("f has no question: give one JSON object on each line.",)
        assert read_pairs(text, "f").problems == ("f has no pair: give one JSON object on each line.",)
