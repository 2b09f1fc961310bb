"""Arguments as Python's literals and as ``key:<|"|>text<|"|>``: what follows the schema is allowed, the rest is not."""

from typing import Any

import pytest

from edgegen.chat.literals import MalformedError, UnfinishedError, read_value
from edgegen.chat.reply import Reply, ReplyFormat, ReplyParser
from edgegen.chat.tool_formats import FORMATS
from edgegen.chat.tools import Tools
from edgegen.constraint import ToolCallConstraint
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

LFM2 = next(style for style in FORMATS if style.name == "lfm2")
GEMMA = next(style for style in FORMATS if style.name == "gemma")
PROPERTIES: dict[str, Any] = {
    "text": {"type": "string"},
    "unit": {"type": "string", "enum": ["C", 'F"']},
    "n": {"type": "integer", "minimum": 1, "maximum": 12},
    "x": {"type": ["number", "null"]},
    "sure": {"type": "boolean"},
    "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 2},
    "place": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
        "required": ["city"],
    },
    "more": {},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": PROPERTIES,
    "required": ["text"],
    "$defs": {"tag": {"type": "string"}},
}


def form_of(style: Any, schema: dict[str, Any]) -> ReplyFormat:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return ReplyFormat(style=style, tools=Tools.read([tool], "required"))


PYTHON: list[tuple[str, dict[str, Any] | None]] = [
    ('text="a"', {"text": "a"}),
    ("text='it\\'s', unit='F\"', n=12", {"text": "it's", "unit": 'F"', "n": 12}),
    ('text="a\\n", unit="F\\"", x=None, sure=True', {"text": "a\n", "unit": 'F"', "x": None, "sure": True}),
    ('text="", x=-1.5e3, sure=False, tags=["p", "q"]', {"text": "", "x": -1500.0, "sure": False, "tags": ["p", "q"]}),
    ('text="a", place={"city": "Oslo", "zip": 10}', {"text": "a", "place": {"city": "Oslo", "zip": 10}}),
    ('text="a", more={"a": [1, None, True]}', {"text": "a", "more": {"a": [1, None, True]}}),
    ("", None),
    ("n=1", None),
    ("text=1", None),
    ('text="a", n=13', None),
    ('text="a", unit="K"', None),
    ('text="a", tags=[]', None),
    ('text="a", tags=["p", "q", "r"]', None),
    ('text="a", place={"zip": "1"}', None),
    ('text="a", sure=true', None),
    ('text="a", other=1', None),
]
BRACES: list[tuple[str, dict[str, Any] | None]] = [
    ('text:<|"|>a "b", {c}<|"|>', {"text": 'a "b", {c}'}),
    ('n:12,sure:true,text:<|"|><|"|>', {"n": 12, "sure": True, "text": ""}),
    (
        'place:{city:<|"|>Oslo<|"|>,zip:<|"|>1<|"|>},tags:[<|"|>p<|"|>],text:<|"|>a<|"|>,unit:<|"|>C<|"|>,x:null',
        {"place": {"city": "Oslo", "zip": "1"}, "tags": ["p"], "text": "a", "unit": "C", "x": None},
    ),
    ('more:{a:[1,true,{}]},text:<|"|>a<|"|>', {"more": {"a": [1, True, {}]}, "text": "a"}),
    ('text:"a"', None),
    ('n:0,text:<|"|>a<|"|>', None),
    ('sure:yes,text:<|"|>a<|"|>', None),
    ("n:1", None),
]


@pytest.mark.parametrize(
    ("style", "written", "expected"),
    [*((LFM2, *entry) for entry in PYTHON), *((GEMMA, *entry) for entry in BRACES)],
)
def test_arguments_follow_the_schema(
    qwen: Vocabulary, style: Any, written: str, expected: dict[str, Any] | None
) -> None:
    form = form_of(style, SCHEMA)
    call = f"[f({written})]" if style is LFM2 else f"call:f{{{written}}}"
    text = f"{style.opening}{call}{style.closing}"
    assert qwen.accepts(ToolCallConstraint.of(form, {}), text) == (expected is not None)
    if expected is None:
        return
    for constrained in (False, True):
        parser = ReplyParser(ReplyFormat(style=style, tools=form.tools, constrained=constrained))
        reply = sum((parser.push(letter) for letter in text), Reply()) + parser.finish()
        assert [call.arguments for call in reply.tool_calls] == [expected]
        assert reply.content == ""


@pytest.mark.parametrize("style", [LFM2, GEMMA], ids=lambda style: style.name)
@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ({"type": "string", "pattern": "a+"}, "an argument 'x' whose pattern cannot"),
        ({"type": "string", "maxLength": 3, "format": "date"}, "whose format, maxLength cannot"),
        ({"type": "array", "items": {"type": "string", "minLength": 1}}, "'x.items' whose minLength cannot"),
        ({"type": "object", "properties": {"y": {"not": {}}}}, "'x.y' whose not cannot"),
        ({"type": "array", "uniqueItems": True}, "whose uniqueItems cannot"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "whose minItems or maxItems cannot"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "additionalProperties or required cannot"),
        ({"enum": [[1]]}, "whose enum of lists or objects cannot"),
        ({"$ref": "#/$defs/none"}, "whose \\$ref '#/\\$defs/none' cannot"),
        ({"$ref": "#/$defs/self"}, "a schema that refers to itself, cannot"),
        ({"type": "text"}, "whose type 'text' cannot"),
    ],
)
def test_what_a_format_cannot_enforce_is_named(style: Any, argument: dict[str, Any], named: str) -> None:
    schema = {
        "type": "object",
        "properties": {"x": argument},
        "$defs": {"self": {"type": "array", "items": {"$ref": "#/$defs/self"}}},
    }
    with pytest.raises(ConstraintError, match=f"the tool 'f' has .*{named}.*in this model's format: leave it out"):
        ToolCallConstraint.of(form_of(style, schema), {})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnfinishedError),
        ("12", UnfinishedError),
        ("-", UnfinishedError),
        ('"a', UnfinishedError),
        ("[1, ", UnfinishedError),
        ('<|"|>a<|"', UnfinishedError),
        ("{a:1", UnfinishedError),
        ("yes,", MalformedError),
        ("[1 2]", MalformedError),
        ("{a 1}", MalformedError),
        ('"\\N{no such name}" ', MalformedError),
        ("[" * 200 + "]" * 200 + " ", MalformedError),
    ],
)
def test_what_is_not_a_value(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_value(text, 0)


def test_long_numbers_are_read() -> None:
    assert read_value("9" * 5000 + ",", 0) == (float("inf"), 5000)
