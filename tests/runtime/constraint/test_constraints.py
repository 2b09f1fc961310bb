"""Constraints that are not JSON schemas: errors before any model runs, and small print."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgegen.constraint import (
    STRUCTURED_OUTPUT,
    AnyJson,
    Choice,
    Constraint,
    ConstraintCompiler,
    Grammar,
    JsonSchema,
    Regex,
    read_response_format,
    read_structured_output,
)
from edgegen.errors import ConstraintError, OptionError
from edgegen.tokenizer import Tokenizer
from tests.runtime.constraint.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Regex("["), "the regular expression cannot be used: regex parse error:"),
        (Regex("a(?=b)"), "look-around, including look-ahead and look-behind, is not supported"),
        (Regex(r"(a)\1"), "backreferences are not supported"),
        (Grammar("start: missing"), 'the grammar cannot be used: at 1(8): unknown name: "missing"'),
        (Grammar("start: A\nA: /[a-z"), "the grammar cannot be used: 3(1): lexer error"),
        (Grammar("begin: A"), "the grammar cannot be used: "),
        (Grammar('root ::= "a'), "the grammar is not GBNF: Unexpected end of input at line 2"),
        (Grammar("root ::= b"), "the grammar is not GBNF: Rule 'b' not found"),
        (Grammar('other ::= "a"'), "the grammar is not GBNF: Rule 'root' not found"),
        (Grammar('start: %json {"not": {}}'), "the grammar cannot be used: "),
        (Grammar("start: a\na: a"), "the grammar cannot go on after 0 tokens: no text of it goes on from here"),
        (Grammar("root ::= " + "(" * 5000), "the grammar is not GBNF: maximum recursion depth exceeded"),
        (Regex("\ud800"), "the regular expression holds half of a character"),
        (Choice(("\ud800",)), "the choice cannot be used: "),
    ],
)
def test_what_is_broken_is_refused(gpt2: Vocabulary, constraint: Constraint, message: str) -> None:
    with pytest.raises(ConstraintError) as error:
        gpt2.compiler.compile(constraint)
    assert message in str(error.value)
    assert "edgegen-root" not in str(error.value)
    assert isinstance(error.value, OptionError)


def _chain(rules: int, brackets: int = 0, first: str = "start", separator: str = ":", name: str = "r") -> str:
    body = "(" * brackets + '"b"? {next}' + ")" * brackets
    lines = [f"{name}{n} {separator} " + body.format(next=f"{name}{n + 1}") for n in range(rules)]
    return "\n".join([f"{first} {separator} {name}0", *lines, f'{name}{rules} {separator} "a"'])


@pytest.mark.parametrize(
    "text",
    [
        _chain(5000),
        _chain(5000, name="T"),
        _chain(300, 25),
        _chain(5000, first="root", separator="::="),
        _chain(5000).replace("\n", " // a comment: ( \n"),
    ],
)
def test_a_chain_of_rules_that_would_overflow_the_stack_is_refused(gpt2: Vocabulary, text: str) -> None:
    with pytest.raises(ConstraintError, match=r"the grammar is too deep: .* 2,000 are allowed"):
        gpt2.compiler.compile(Grammar(text))


@pytest.mark.parametrize("text", [_chain(1900), _chain(300, name="T"), _chain(70, 25)])
def test_a_chain_of_rules_within_the_limit_is_compiled(gpt2: Vocabulary, text: str) -> None:
    assert gpt2.accepts(Grammar(text), "a")


def test_what_only_looks_like_rules_and_brackets_is_no_depth(gpt2: Vocabulary) -> None:
    properties = ", ".join(f'"k{n}": {{"const": {n}}}' for n in range(1500))
    assert gpt2.compiler.compile(Grammar('start: %json {"properties": {' + properties + "}}"))
    assert gpt2.accepts(Grammar('start: "(:" | ' + " | ".join(f'"({n}:"' for n in range(1500))), "(1499:")


def test_a_grammar_has_a_size() -> None:
    with pytest.raises(ConstraintError, match="the grammar has 1,000,001 characters, and 1,000,000 are allowed"):
        Grammar("#" * 1_000_001)


def test_a_json_schema_has_a_size(gpt2: Vocabulary) -> None:
    schema = JsonSchema.of({"properties": {f"property {n}": True for n in range(100_000)}})
    with pytest.raises(ConstraintError, match=r"the JSON schema has 2,\d+,\d+ characters, and 1,000,000 are allowed"):
        gpt2.compiler.compile(schema)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "choices are one or more texts"),
        (["a", ""], "none of them empty"),
        ("abc", r"choices are a list of texts, not one text: ['abc']"),
        (["a", 1], "choices are texts, and 1 is not a text: write it in quotes"),
    ],
)
def test_wrong_choices(texts: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(message)):
        Choice.of(texts)


def test_many_choices(gpt2: Vocabulary) -> None:
    choice = Choice.of([f"option {n}" for n in range(5000)] + ["option 7"])
    assert gpt2.accepts(choice, "option 4999")
    assert not gpt2.accepts(choice, "option 5000")


@pytest.mark.parametrize(
    ("text", "syntax", "message"),
    [
        (" \n", None, "the grammar is empty"),
        ("start: A", "larc", r"a grammar's syntax is lark or gbnf, not 'larc' (did you mean 'lark'?)"),
    ],
)
def test_wrong_grammars(text: str, syntax: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(message)):
        Grammar(text, syntax)


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("^abc$", ["abc"], ["xabc", "abcx", "abc\n"]),
        ("^a|b$", ["a", "b"], ["ax", "xb"]),
        ("a/b\\/c", ["a/b/c"], ["ab"]),
        ("", [""], ["a"]),
        (".", ["é", "😀"], ["\n", ""]),
        ("a*?b", ["b", "aab"], ["a"]),
    ],
)
def test_regular_expressions(gpt2: Vocabulary, pattern: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not gpt2.accepts(Regex(pattern), text)] == []
    assert [text for text in wrong if gpt2.accepts(Regex(pattern), text)] == []


@pytest.mark.parametrize(
    ("gbnf", "right", "wrong"),
    [
        ('root ::= word "a"\nword ::= [a-z]+', ["ba", "baa"], ["b", "a"]),  # what a word takes, it gives back
        ('root ::= "\\u00e9" [\\u00e9\\x41] "\\x41" "\\n"', ["ééA\n", "éAA\n"], ["éBA\n"]),
        ('# a list\nroot ::= item{2,3} # more\nitem ::= "- " [^\\n]+ "\\n"', ["- a\n- b\n"], ["- a\n", "- \n- \n"]),
        ('root ::= ("a" |\n  "b") "c"? # end\n', ["a", "bc"], ["c", "abc"]),
        ('root ::= "root" | "x" root', ["root", "xxroot"], ["x"]),
        ('root ::= "\\"" [^"\\\\] "\\\\" "]" [\\]\\[]', ['"a\\]['], ['""\\][']),
        ("root ::= camelCase kebab-case\ncamelCase ::= [+/-]\nkebab-case ::= .", ["+é", "-/", "/a"], [",a"]),
    ],
)
def test_gbnf(gpt2: Vocabulary, gbnf: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not gpt2.accepts(Grammar(gbnf), text)] == []
    assert [text for text in wrong if gpt2.accepts(Grammar(gbnf), text)] == []


def test_special_tokens_by_name(gpt2: Vocabulary) -> None:
    assert gpt2.accepts(Grammar('start: "a" <|endoftext|> "b"'), []) is False
    compiled = gpt2.compiler.compile(Grammar('start: "a" <|endoftext|> "b"'))
    state = compiled.start(())
    for token_id in (gpt2.encode("a")[0], gpt2.eos[0], gpt2.encode("b")[0]):
        state.accept(token_id)
    assert state.is_complete


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, AnyJson()),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}},
            JsonSchema('{"type": "null"}'),
        ),
        (Regex("a"), Regex("a")),
        ({"type": "json_object", "schema": {}}, AnyJson()),
        ({"type": "json_object", "schema": {"type": "null"}}, JsonSchema('{"type": "null"}')),
        ({"type": "json_object", "value": {"type": "null"}}, JsonSchema('{"type": "null"}')),
        ({"type": "json", "schema": {"type": "null"}}, JsonSchema('{"type": "null"}')),
        (
            {"type": "json_schema", "schema": {"type": "null"}, "name": "n", "strict": None},
            JsonSchema('{"type": "null"}'),
        ),
        ({"type": "json_schema", "value": {"name": "n", "schema": {"type": "null"}}}, JsonSchema('{"type": "null"}')),
        ({"type": "regex", "pattern": "a"}, Regex("a")),
        ({"type": "regex", "value": "a"}, Regex("a")),
        ({"type": "grammar", "grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
        ({"type": "ebnf", "ebnf": 'root ::= "a"'}, Grammar('root ::= "a"', "gbnf")),
    ],
)
def test_response_formats(value: object, expected: object) -> None:
    assert read_response_format(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("json", "response_format is a mapping with a 'type', a pydantic model or a constraint, not str"),
        ({"type": "json_shema"}, "not 'json_shema' (did you mean 'json_schema'?)"),
        ({"type": "object"}, "a schema goes into {'type': 'json_schema'"),
        ({"type": "json_schema"}, "response_format 'json_schema' holds the schema at ['json_schema']['schema']"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, "holds the schema at ['json_schema']['schema']"),
        ({"type": "json"}, "response_format 'json' holds the schema at ['schema']"),
        ({"type": "regex"}, "response_format 'regex' holds the regular expression at ['regex']"),
        ({"type": "grammar"}, "response_format 'grammar' holds the grammar at ['grammar']"),
        ({"type": "regex", "pattern": 3}, "response_format.pattern: text expected, found 3"),
        ({"type": "structural_tag", "triggers": []}, "type structural_tag is not supported: use 'tools'"),
        ({"type": "text", "schema": {}}, "'schema' is not a key of response_format"),
        ({"type": "json_object", "shema": {}}, "'shema' is not a key of response_format (did you mean 'schema'?)"),
        (
            {"type": "json_object", "schema": {}, "value": {}},
            "'schema' and 'value' would say the same: keep one of them",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a b", "scheme": {}, "strict": "yes", "description": 1}},
            (
                "5 problems:\n"
                "  - 'scheme' is not a key of response_format.json_schema (did you mean 'schema'?)\n"
                "  - response_format.json_schema.name: 1 to 64 letters, digits, _ and - expected, found 'a b'\n"
                "  - response_format.json_schema.description: text expected, found 1\n"
                "  - response_format.json_schema.strict: true or false expected, found 'yes'\n"
                "  - response_format 'json_schema' holds the schema at ['json_schema']['schema']"
            ),
        ),
    ],
)
def test_wrong_response_formats(value: object, message: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(message)):
        read_response_format(value)


NULL = JsonSchema('{"type": "null"}')


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"structured_outputs": None, "guided_json": None, "guided_decoding_backend": "xgrammar"}, None),
        ({"json_schema": {"type": "null"}}, NULL),
        ({"json_schema": '{"type": "null"}'}, NULL),
        ({"guided_json": {"type": "null"}, "guided_decoding_backend": "guidance"}, NULL),
        ({"guided_regex": "a"}, Regex("a")),
        ({"regex": "a"}, Regex("a")),
        ({"guided_choice": ["a", "b"]}, Choice(("a", "b"))),
        ({"guided_grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
        ({"ebnf": 'root ::= "a"'}, Grammar('root ::= "a"', "gbnf")),
        ({"guided_json_object": True}, AnyJson()),
        ({"structured_outputs": {"json": {"type": "null"}, "disable_any_whitespace": True}},
         JsonSchema('{"type": "null"}', "compact")),
        ({"structured_outputs": {"json": {"type": "null"}, "disable_additional_properties": False}},
         JsonSchema('{"type": "null"}', additional_properties=True)),
        ({"structured_outputs": {"choice": ["a"], "disable_fallback": True}}, Choice(("a",))),
        ({"structured_outputs": {"json_object": True}}, AnyJson()),
        ({"guided_grammar": "start: X", "structured_outputs": {"grammar": "start: X"}}, Grammar("start: X")),
        ({"guided_json": {"type": "null"}, "json_schema": '{"type": "null"}'}, NULL),
        ({"guided_json": {"type": "null"}, "guided_whitespace_pattern": "[ \n]?"},
         JsonSchema('{"type": "null"}', whitespace_pattern="[ \n]?")),
        ({"structured_outputs": {"json_object": True, "whitespace_pattern": " *"}}, AnyJson(whitespace_pattern=" *")),
    ],
)  # fmt: skip
def test_other_parameters_for_structured_output(given: dict[str, Any], expected: object) -> None:
    assert given.keys() <= STRUCTURED_OUTPUT
    assert read_structured_output(given) == expected


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"a":[1,{}],"b":[]}', "compact flexible any"),
        ('{"a": [1, {}], "b": []}', "flexible any"),
        (json.dumps({"a": [1, {"b": {}}], "c": []}, indent=4), "flexible any"),
        (json.dumps({"a": [1, {"b": {}}], "c": []}, indent="\t"), "flexible any"),
        ('{ "a": 1 }', "any"),
        ('{"a" : [ ]}', "any"),
        ('{"a"\n: [1]}', "any"),
        ('{"a": [1\n, 2]}', "any"),
        ("{\n}", "any"),
        ("{  }\n", "any"),
    ],
)
def test_whitespace_of_any_json(gpt2: Vocabulary, text: str, allowed: str) -> None:
    for whitespace in ("compact", "flexible", "any"):
        assert gpt2.accepts(AnyJson(whitespace=whitespace), text) == (whitespace in allowed.split()), whitespace


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("", '{"a":[1]}', '{"a": [1]}'),
        (" ?", '{"a": [1 ] }', '{"a":\n[1]}'),
        (r"[\n\t ]*", '{\n\t"a":  [1]}', '{"a":\u00a0[1]}'),
        (r"\s+", '{"a":\n\n[ 1]}', '{"a":\u00a0[1]}'),
        ("( |\n){1,2}".replace("{1,2}", "+"), '{"a": \n[1]}', '{"a":\t[1]}'),
    ],
)
def test_a_whitespace_pattern_is_what_may_stand_in_one_place(
    gpt2: Vocabulary, pattern: str, right: str, wrong: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    for given in ({"guided_json": schema}, {"guided_json_object": True}):
        constraint = read_structured_output({**given, "guided_whitespace_pattern": pattern})
        assert constraint is not None
        assert gpt2.accepts(constraint, right)
        assert not gpt2.accepts(constraint, wrong)


@pytest.mark.parametrize("pattern", ["a", " |x", "[^ ]", ".", "( {3}){3}", r"\d", " " * 101, "[ 1]", "(?: )"])
def test_a_pattern_that_may_be_more_than_space_is_refused(pattern: str) -> None:
    with pytest.raises(ConstraintError, match="guided_whitespace_pattern: a whitespace pattern is"):
        read_structured_output({"guided_json": {}, "guided_whitespace_pattern": pattern})
    with pytest.raises(ConstraintError, match="guided_whitespace_pattern: text expected, found 3"):
        read_structured_output({"guided_json": {}, "guided_whitespace_pattern": 3})
    both = {"guided_json": {}, "guided_whitespace_pattern": " ", "structured_outputs": {"whitespace_pattern": ""}}
    with pytest.raises(ConstraintError, match="differ: keep one of them"):
        read_structured_output(both)


def test_wrong_parameters_for_structured_output() -> None:
    given: dict[str, Any] = {
        "guided_regex": 3,
        "guided_whitespace_pattern": " ",
        "structured_outputs": {"jsn": {}, "choice": "a", "structural_tag": "x", "disable_fallback": 1},
    }
    with pytest.raises(ConstraintError) as error:
        read_structured_output(given)
    assert str(error.value).splitlines() == [
        "7 problems:",
        "  - 'jsn' is not a key of structured_outputs (did you mean 'json'?)",
        "  - structured_outputs.structural_tag is not supported: leave it out",
        "  - structured_outputs.disable_fallback: true or false expected, found 1",
        "  - guided_regex and structured_outputs.choice each say what the text must be: keep one of them",
        "  - guided_whitespace_pattern goes with a JSON schema or json_object beside it, and there is none",
        "  - guided_regex: text expected, found 3",
        "  - structured_outputs.choice: a list of texts expected, found 'a'",
    ]
    with pytest.raises(ConstraintError, match="structured_outputs does not say what the text must be"):
        read_structured_output({"structured_outputs": {}})
    with pytest.raises(ConstraintError, match="structured_outputs: an object expected, found 3"):
        read_structured_output({"structured_outputs": 3})


def test_a_pydantic_model_and_what_it_makes_of_the_answer(gpt2: Vocabulary) -> None:
    class Person:
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    constraint = read_response_format(Person, "compact")
    assert constraint == JsonSchema.of(Person.model_json_schema(), "compact")
    assert constraint is not None
    assert gpt2.accepts(constraint, '{"name":"Zoë"}')


def test_a_vocabulary_that_spells_no_bytes(test_data: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text('{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}')
    with pytest.raises(ConstraintError, match="neither byte-level nor has it a byte fallback"):
        ConstraintCompiler(Tokenizer.from_file(file), 2).compile(Regex("a"))


def test_threads_share_a_compiler(test_data: Path) -> None:
    vocabulary = Vocabulary.read(test_data / "tokenizers" / "gpt2" / "tokenizer.json", 50257, "<|endoftext|>")
    constraints = [Regex(f"[a-z]{{{n % 3 + 1}}}") for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(vocabulary.accepts, constraints, ["ab"] * len(constraints)))
    assert results == [n % 3 == 1 for n in range(24)]


def test_only_the_last_constraints_are_kept(gpt2: Vocabulary) -> None:
    compiler = ConstraintCompiler(gpt2.tokenizer, gpt2.size, most_bytes=8 << 20)
    first = compiler.compile(Regex("a"))
    assert compiler.compile(Regex("a")) is first
    for n in range(20):
        compiler.compile(Regex(f"b{{{n}}}"))
        assert compiler.kept_bytes <= 8 << 20
    assert compiler.compile(Regex("a")) is not first


def test_a_large_constraint_takes_the_place_of_many_small_ones(gpt2: Vocabulary) -> None:
    compiler = ConstraintCompiler(gpt2.tokenizer, gpt2.size, most_bytes=8 << 20)
    small = compiler.compile(Regex("a"))
    large = Choice.of([f"{n:0100}" for n in range(200)])
    assert compiler.compile(large) is compiler.compile(large)  # more than all may take, and kept until the next
    assert compiler.compile(Regex("a")) is not small
    assert compiler.kept_bytes <= 8 << 20
