"""Answers end: under a schema that bounds its values, whatever the model prefers."""

import json
from typing import Any

import numpy as np
import pytest

from edgegen import LLM
from edgegen.constraint import Constraint, JsonSchema, Whitespace
from edgegen.options.engine import EngineOptions
from edgegen.sampling.candidates import Candidates
from tests.runtime.constraint.vocabulary import Vocabulary

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
}
TEXT = {"type": "string", "maxLength": 5}
DIGIT = {"type": "integer", "minimum": -9, "maximum": 99}
SHAPES: dict[str, dict[str, Any]] = {
    kind: {"type": "object", "properties": {"kind": {"const": kind}, name: DIGIT}, "required": ["kind"]}
    for kind, name in (("circle", "radius"), ("square", "side"))
}
MOST = "😀" * 5  # the most bytes that five characters have
SCHEMAS: tuple[tuple[dict[str, Any], Any, int], ...] = (
    # with a value whose text has as many bytes and brackets as any other, and its levels, or what is taken for them
    (PERSON, {"name": "Lily", "age": 1}, 1),
    (PERSON | {"required": []}, {"name": "Lily", "age": 1}, 1),
    ({"type": "object", "properties": {}}, {}, 1),
    ({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}}, {"a": False, "b": None}, 1),
    ({"type": "object", "properties": {"who": PERSON, "whom": PERSON}},
     {"who": {"name": "Lily", "age": 1}, "whom": {"name": "Lily", "age": 1}}, 2),
    ({"type": "array", "items": DIGIT, "maxItems": 4}, [10] * 4, 1),
    ({"type": "array", "items": {"type": "array", "items": DIGIT, "maxItems": 2}, "maxItems": 3}, [[10, 10]] * 3, 2),
    ({"type": "array", "prefixItems": [TEXT, DIGIT], "items": False}, [MOST, 10], 1),
    ({"type": "object", "properties": {"text": TEXT}}, {"text": MOST}, 1),
    ({"allOf": [{"properties": {"a": DIGIT}}, {"properties": {"b": DIGIT}}], "type": "object"}, {"a": 10, "b": 10}, 6),
    ({"oneOf": list(SHAPES.values())}, {"kind": "circle", "radius": 10}, 1),
    ({"anyOf": [{"$ref": "#/$defs/p"}, {"type": "null"}], "$defs": {"p": PERSON}}, {"name": "Lily", "age": 1}, 1),
    ({"type": "object", "properties": {"b": {"$ref": "#/$defs/p"}}, "$defs": {"p": PERSON}},
     {"b": {"name": "Lily", "age": 1}}, 2),
)  # fmt: skip


def most_tokens(longest: Any, levels: int, whitespace: Whitespace) -> int:
    """One for each byte; in ``flexible``, also those of a space and two line breaks at each comma, colon, bracket."""
    text = json.dumps(longest, ensure_ascii=False, separators=(",", ":"))
    places = sum(text.count(letter) for letter in "{}[],:")
    return len(text.encode()) + (places * (1 + 2 * (1 + 4 * levels)) if whitespace == "flexible" else 0)


@pytest.fixture(scope="module")
def texts(gpt2: Vocabulary) -> list[str]:
    """Of each token."""
    return [gpt2.tokenizer.decode([token_id]) for token_id in range(gpt2.size)]


def said(vocabulary: Vocabulary, texts: list[str], constraint: Constraint, most: int, likes: str = "") -> list[int]:
    """Return the ids of a model that never wants to end: the shortest tokens, those of ``likes`` before all others."""
    logits = np.array([-len(text) - 50 * any(end in text for end in '"}]') for text in texts], np.float32)
    logits[[n for n, text in enumerate(texts) if text and not text.strip(likes)] if likes else []] += 100
    logits[list(vocabulary.eos)] = -1000
    state, ids = vocabulary.start(constraint), list[int]()
    while not state.is_complete and len(ids) <= most:
        kept = state.apply(Candidates(logits))
        ids.append(kept.id_at(int(np.argmax(kept.logits))))
        if ids[-1] in vocabulary.eos:
            break
        state.accept(ids[-1])
    return ids


@pytest.mark.parametrize(("schema", "longest", "levels"), SCHEMAS, ids=lambda value: json.dumps(value)[:40])
def test_an_answer_ends_whatever_a_model_prefers(
    gpt2: Vocabulary, texts: list[str], schema: dict[str, Any], longest: Any, levels: int
) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    assert validator.is_valid(longest)
    for whitespace in ("compact", "flexible"):
        most = most_tokens(longest, levels, whitespace)
        for likes in ("", " ", " \n", "\t\n", ","):
            ids = said(gpt2, texts, JsonSchema.of(schema, whitespace), most, likes)
            assert len(ids) <= most, gpt2.tokenizer.decode(ids)
            text = gpt2.tokenizer.decode([token_id for token_id in ids if token_id not in gpt2.eos])
            assert validator.is_valid(json.loads(text)), text


def test_an_open_object_need_not_end(gpt2: Vocabulary, texts: list[str]) -> None:
    schema = JsonSchema.of(PERSON, additional_properties=True)
    assert len(said(gpt2, texts, schema, 500, ",")) > 500


def test_the_embedded_model_ends_its_answers() -> None:
    llm = LLM.load("stories", options=EngineOptions(threads=1))
    for seed in range(4):
        answer = llm.generate("A hero:", max_new_tokens=200, seed=seed, response_format=JsonSchema.of(PERSON))
        assert answer.finish_reason == "stop"
        assert json.loads(answer.text).keys() == {"name", "age"}
