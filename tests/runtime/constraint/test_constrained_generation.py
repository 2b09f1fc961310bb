"""Whatever a model says, what ends with ``stop`` is of the grammar; the same seed gives the same ids."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgegen.constraint import AnyJson, Choice, Constraint, Grammar, JsonSchema, Regex
from edgegen.engine.finish import StopMatch
from tests.runtime.constraint.fake_model import FakeModel, generate
from tests.runtime.constraint.vocabulary import Vocabulary

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}, "required": ["v"]}
SCHEMAS: tuple[Any, ...] = (
    True,
    {"type": "string"},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    {"type": "string", "pattern": "b+"},
    {"type": "integer"},
    {"type": "integer", "minimum": -7, "exclusiveMaximum": 130},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 2.25},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["integer", "null"]},
    {"const": {"a": [1, None, "é"]}},
    {"enum": ["red", 3, None, {"x": 1.5}, [True]]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "array", "items": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2}, "minItems": 1},
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "z"], "additionalProperties": False}
    | {"properties": {"a": {"type": "null"}, "z": {"type": "boolean"}}},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "date-time"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "null"}], "minItems": 1},
)  # fmt: skip
REGEXES = (
    "[a-z]{3,9}",
    r"\d{4}-\d{2}-\d{2}",
    r"(?i)yes|no|maybe",
    "(ab|c)*d",
    r"[^\n]{1,20}",
    "é+😀?",
    r"\+?[0-9 ]{5,12}",
    "(?s).{0,10}",
)
CHOICES = (("positive", "negative", "neutral"), ("a", "ab", "abc"), (" yes", " no"), ("日本", "日本語", '"\n'))
GRAMMARS = (
    ('start: expr\nexpr: NUMBER | "(" expr ("+"|"*") expr ")"\nNUMBER: /[0-9]{1,3}/', r"[0-9()+*]+"),
    ('root ::= line{1,3}\nline ::= "- " [a-z ]{1,10} "\\n"', r"(- [a-z ]{1,10}\n){1,3}"),
    ('root ::= "[" (item ("," item)*)? "]"\nitem ::= [0-9]+ | "x"', r"\[((\d+|x)(,(\d+|x))*)?\]"),
    ('root ::= pair\npair ::= "(" pair? ")"', r"\(+\)+"),
    ('root ::= [^\\x00-\\x7F]{1,4} "\\u00e9" | "\\"" [^"\\\\\\]]* "\\""', r'[^\x00-\x7f]{1,4}é|"[^"\\\]]*"'),
)


def answers(vocabulary: Vocabulary, constraint: Constraint, count: int = 3) -> list[str]:
    """The texts of those of ``count`` answers that ended with ``stop``, and there must be one."""
    made = [generate(FakeModel(vocabulary, seed), constraint, seed=seed) for seed in range(count)]
    texts = [answer.text for answer in made if answer.finish is not None]
    assert texts
    return texts


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_json_validates(gpt2: Vocabulary, schema: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.validators.validator_for(schema)(schema)
    for whitespace in ("compact", "flexible", "any"):
        for text in answers(gpt2, JsonSchema.of(schema, whitespace)):
            validator.validate(json.loads(text))


def test_any_json_parses(vocabulary: Vocabulary) -> None:
    for text in answers(vocabulary, AnyJson()):
        assert isinstance(json.loads(text), dict)
    for text in answers(vocabulary, AnyJson(any_value=True, whitespace="any")):
        json.loads(text)


@pytest.mark.parametrize("pattern", REGEXES)
def test_regexes_match(vocabulary: Vocabulary, pattern: str) -> None:
    for text in answers(vocabulary, Regex(pattern)):
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("texts", CHOICES)
def test_choices_are_among_them(vocabulary: Vocabulary, texts: tuple[str, ...]) -> None:
    assert set(answers(vocabulary, Choice(texts))) <= set(texts)


@pytest.mark.parametrize(("grammar", "pattern"), GRAMMARS)
def test_grammars_are_kept(vocabulary: Vocabulary, grammar: str, pattern: str) -> None:
    for text in answers(vocabulary, Grammar(grammar)):
        assert re.fullmatch(pattern, text), text
        if '"("' in grammar:
            assert text.count("(") == text.count(")")


LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string", "maxLength": 4}]),
    st.tuples(st.integers(-9, 9), st.integers(0, 9)).map(
        lambda pair: {"type": "integer", "minimum": pair[0], "maximum": pair[0] + pair[1]}
    ),
    st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=3), st.none()), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
)


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.tuples(inner, st.integers(0, 2)).map(
        lambda pair: {"type": "array", "items": pair[0], "minItems": pair[1], "maxItems": pair[1] + 1}
    )
    names = st.dictionaries(st.text('ab"\\é/~', max_size=3), inner, max_size=3)
    objects = st.tuples(names, st.booleans()).map(
        lambda pair: {
            "type": "object",
            "properties": pair[0],
            "required": sorted(pair[0])[:2],
            "additionalProperties": {"type": "integer"} if pair[1] else False,
        }
    )
    return st.one_of(arrays, objects, st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(schema=st.recursive(LEAVES, _nest, max_leaves=4), seed=st.integers(0, 2**32))
def test_random_schemas_validate(gpt2: Vocabulary, schema: Any, seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    if re.search(r"\\u00(0[0-7bef]|1|7f)", json.dumps(schema)):
        return  # control characters are refused
    answer = generate(FakeModel(gpt2, seed), JsonSchema.of(schema), seed=seed, most=200)
    if answer.finish is not None:
        jsonschema.validate(json.loads(answer.text), schema)


@pytest.mark.parametrize("do_sample", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "qwen", "llama"])
def test_forced_tokens_leave_the_ids_alone(name: str, do_sample: bool, request: pytest.FixtureRequest) -> None:
    vocabulary: Vocabulary = request.getfixturevalue(name)
    person = {"type": "object", "properties": {"first_name": {"type": "string"}, "date_of_birth": {"type": "integer"}}}
    schema = JsonSchema.of({**person, "required": ["first_name", "date_of_birth"], "additionalProperties": False})
    constraints: list[Constraint] = [schema, Regex("Once upon a time, [a-z]+ lived happily ever after"), AnyJson()]
    accepted = 0
    for seed in range(3):
        for constraint in constraints:
            model = FakeModel(vocabulary, seed)
            plain = generate(model, constraint, seed=seed, do_sample=do_sample)
            fast = generate(model, constraint, seed=seed, do_sample=do_sample, propose=True)
            assert fast.ids == plain.ids
            assert (fast.text, fast.finish) == (plain.text, plain.finish)
            accepted += fast.accepted
    assert accepted >= 30


def test_the_same_seed_gives_the_same_ids(gpt2: Vocabulary) -> None:
    schema = JsonSchema.of(SCHEMAS[19])
    first, again, other = (generate(FakeModel(gpt2, 5), schema, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.ids != other.ids


def test_stop_strings_end_a_constrained_text_too(gpt2: Vocabulary) -> None:
    answer = generate(FakeModel(gpt2, 1), Regex("aaa(bcd)?bbb!"), stop_strings=["bbb"])
    assert answer.finish == StopMatch("stop", "bbb", "stop_strings")
    assert answer.text in ("aaa", "aaabcd")


def test_a_stop_string_at_the_end_of_a_complete_text(gpt2: Vocabulary) -> None:
    answer = generate(FakeModel(gpt2, 1), Regex("aaabb"), stop_strings=["bb", "bbc"])
    assert (answer.text, answer.finish) == ("aaa", StopMatch("stop", "bb", "stop_strings"))


def test_a_complete_text_ends_at_once(gpt2: Vocabulary) -> None:
    answer = generate(FakeModel(gpt2, 1), Choice(("no", "yes")))
    assert answer.finish == StopMatch("stop", None, "grammar")
    assert not set(answer.ids) & set(gpt2.eos)
