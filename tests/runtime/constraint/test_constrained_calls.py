"""Every family's own calls under a constraint, with the control tokens of its models."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgegen.chat.reply import Reply, ReplyParser
from edgegen.chat.tools import Tools
from edgegen.constraint import ConstraintCompiler, ToolCallConstraint
from tests.runtime.chat.families import CASES, CHATGLM4, YANDEX, Case, form_of, pieces_of, sources, special_tokenizer
from tests.runtime.chat.test_reply import joined
from tests.runtime.constraint.vocabulary import Vocabulary

CONSTRAINED = [(case.templates[0], case) for case in (*CASES, CHATGLM4, YANDEX) if not case.free]


@pytest.fixture(scope="module")
def vocabulary(test_data: Path) -> Vocabulary:
    """GPT-2's, with the control tokens of all families."""
    tokenizer = special_tokenizer(test_data)
    size = 1 + max(tokenizer.added_tokens)
    end = tokenizer.token_to_id("<|endoftext|>")
    assert end is not None
    return Vocabulary(tokenizer, size, (end,), ConstraintCompiler(tokenizer, size))


@pytest.mark.parametrize(("name", "case"), CONSTRAINED, ids=[f"{name}-{n}" for n, (name, _) in enumerate(CONSTRAINED)])
def test_what_a_model_writes_is_allowed(vocabulary: Vocabulary, test_data: Path, name: str, case: Case) -> None:
    tokenizer = vocabulary.tokenizer
    special = {token.content: token_id for token_id, token in tokenizer.added_tokens.items()}
    form = form_of(sources(test_data)[name], case, special=special)
    special = {text: special[text] for text in form.markers if text in case.special}
    ids = tokenizer.encode(case.text, add_special_tokens=False)
    free = ToolCallConstraint.of(form, special)
    assert vocabulary.accepts(free, ids), free.grammar
    reply, parser = Reply(), ReplyParser(replace(form, constrained=True))
    for piece in pieces_of(tokenizer, case.text):
        reply += parser.push(piece)
    reply += parser.finish()
    assert (reply.content, reply.reasoning_content) == (case.content, case.thought)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [*case.calls]
    assert joined(reply) == [(call.id, call.name, call.arguments_json) for call in reply.tool_calls]
    if not case.calls:
        return
    for broken in (case.text.replace("city", "town"), case.text.replace("look_up", "look_upp")):
        if broken != case.text and (form.style is None or form.style.opening):
            assert not vocabulary.accepts(free, tokenizer.encode(broken, add_special_tokens=False)), broken
    assert form.tools is not None
    required = replace(form, tools=replace(form.tools, required=True))
    must = ToolCallConstraint.of(required, special, "flexible")
    assert vocabulary.accepts(must, ids) == (case.content == "")
    assert not vocabulary.accepts(must, tokenizer.encode("I look."))


def test_calls_that_must_be_made_come_to_an_end(vocabulary: Vocabulary, test_data: Path) -> None:
    """A small model goes on with one call for ever; after some there is no way but to end."""
    seen = set[str]()
    for name, case in CONSTRAINED:
        form = form_of(sources(test_data)[name], replace(case, prompt=""), "required", special={})
        assert form.style is not None
        if form.style.name in seen:
            continue
        seen.add(form.style.name)
        call = written_call(form.style.name)
        if call is None:
            continue
        begin, one, between, end = call
        constraint = ToolCallConstraint.of(form, {}, "flexible")
        for count, allowed in ((1, True), (8, True), (9, False)):
            text = begin + between.join([one] * count) + end
            assert vocabulary.accepts(constraint, text) == allowed, (name, count)


def written_call(style: str) -> tuple[str, str, str, str] | None:
    """Return the text that begins calls, one of them, the text between two, and the text that ends them."""
    entry = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    return {
        "hermes": ("", f"<tool_call>\n{entry}\n</tool_call>", "\n", ""),
        "apriel": ("<tool_calls>[", entry, ", ", "]</tool_calls>"),
        "llama": ("", '{"name": "get_weather", "parameters": {"city": "Oslo"}}', "; ", ""),
        "mistral-named": ("", '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}', "", ""),
        "lfm2": ("<|tool_call_start|>[", 'get_weather(city="Oslo")', ", ", "]<|tool_call_end|>"),
        "gemma": ("", '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>}<tool_call|>', "", ""),
        "minimax": (
            "<minimax:tool_call>\n",
            '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>',
            "\n",
            "\n</minimax:tool_call>",
        ),
    }.get(style)


def test_a_named_tool_is_called_once(vocabulary: Vocabulary, test_data: Path) -> None:
    case = next(case for case in CASES if case.templates[0] == "LFM2-8B-A1B" and not case.free)
    form = form_of(sources(test_data)["LFM2-8B-A1B"], case)
    choice = {"type": "function", "function": {"name": "get_weather"}}
    one = replace(form, tools=Tools.read([*form.tools.definitions] if form.tools else [], choice))
    constraint = ToolCallConstraint.of(one, {})
    assert vocabulary.accepts(constraint, '<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>')
    assert not vocabulary.accepts(
        constraint, '<|tool_call_start|>[get_weather(city="Oslo"), get_weather(city="Rome")]<|tool_call_end|>'
    )
