"""Answers of every template's models, in their own formats: read whole, token by token, and cut short anywhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgegen.chat import ChatTemplate, Conversation
from edgegen.chat.reasoning import reasoning_markers
from edgegen.chat.reply import Reply, ReplyFormat, ReplyParser
from edgegen.chat.tool_formats import tool_format
from edgegen.tokenizer import Tokenizer
from tests.runtime.chat.families import WRITTEN, Call, Case, form_of, pieces_of, sources, special_tokenizer
from tests.runtime.chat.material import small_tokenizer

Read = tuple[str, str, list[Call]]


@pytest.fixture(scope="module")
def tokenizer(test_data: Path) -> Tokenizer:
    return special_tokenizer(test_data)


@pytest.fixture(scope="module")
def templates(test_data: Path) -> dict[str, str]:
    return sources(test_data)


def read(form: ReplyFormat, pieces: list[str], *, cut: bool = False) -> Read:
    parser = ReplyParser(form)
    reply = sum((parser.push(piece) for piece in pieces), Reply()) + parser.finish(cut=cut)
    return reply.content, reply.reasoning_content, [(call.name, call.arguments) for call in reply.tool_calls]


WRITTEN_BY = pytest.mark.parametrize(
    ("name", "case"), WRITTEN, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRITTEN)]
)


@WRITTEN_BY
def test_an_answer_is_read_at_every_boundary(
    tokenizer: Tokenizer, templates: Mapping[str, str], name: str, case: Case
) -> None:
    expected = (case.content, case.thought, [*case.calls])
    nothing: dict[str, int] = {}
    for special in (None, nothing):
        form = form_of(templates[name], case, special=special)
        assert read(form, [case.text]) == expected
        assert read(form, [*case.text]) == expected
        assert read(form, pieces_of(tokenizer, case.text)) == expected


@WRITTEN_BY
def test_an_answer_that_is_cut_short_leaves_no_control_text(
    tokenizer: Tokenizer, templates: Mapping[str, str], name: str, case: Case
) -> None:
    form, pieces = form_of(templates[name], case, special={}), pieces_of(tokenizer, case.text)
    for count in range(len(pieces)):
        content, thought, calls = read(form, pieces[:count], cut=True)
        assert case.content.startswith(content.rstrip()), pieces[:count]
        assert case.thought.startswith(thought), pieces[:count]
        assert [*case.calls][: len(calls)] == calls
        assert read(form, ["".join(pieces[:count])], cut=True) == (content, thought, calls)


def test_every_template_has_answers(templates: Mapping[str, str]) -> None:
    assert {*list(templates)[:54]} <= {name for name, _ in WRITTEN}
    assert {name for name, _ in WRITTEN} == {*FAMILIES}


FAMILIES = {
    "Apertus-8B-Instruct": ("apertus", "<|inner_prefix|>"),
    "Apriel-1.6-15b-Thinker-fixed": ("apriel", "Here are my reasoning steps:"),
    "Bielik-11B-v3.0-Instruct": ("hermes", "<think>"),
    "ByteDance-Seed-OSS": ("seed-oss", "<seed:think>"),
    "ChatGLM4": ("chatglm4", None),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("command-r-plus", None),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("command-r", "<|START_THINKING|>"),
    "GLM-4.6": ("glm", "<think>"),
    "GLM-4.7-Flash": ("glm", "<think>"),
    "GigaChat3-10B-A1.8B": ("gigachat-3", None),
    "GigaChat3.1-10B-A1.8B": ("gigachat", None),
    "HuggingFaceTB-SmolLM3-3B": (None, "<think>"),
    "Kimi-K2-Instruct": ("kimi", None),
    "Kimi-K2-Thinking": ("kimi", "<think>"),
    "LFM2-8B-A1B": ("lfm2", None),
    "LFM2.5-Instruct": ("lfm2", "<think>"),
    "MiMo-VL": ("hermes", None),
    "MiniMax-M2": ("minimax", "<think>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral-id", None),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3-coder", "<think>"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", "<think>"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", None),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "Qwen-QwQ-32B": ("hermes", "<think>"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", "<think>"),
    "Qwen3-Coder": ("qwen3-coder", None),
    "Qwen3.5-4B": ("qwen3-coder", "<think>"),
    "StepFun3.5-Flash": ("qwen3-coder", "<think>"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": (None, "<think>"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (None, "<think>"),
    "deepseek-ai-DeepSeek-V3.1": (None, "<think>"),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek-dsml", "<think>"),
    "fireworks-ai-llama-3-firefunction-v2": ("firefunction", None),
    "google-gemma-2-2b-it": (None, None),
    "google-gemma-4-31B-it": ("gemma", "<|channel>thought"),
    "google-gemma-4-31B-it-interleaved": ("gemma", "<|channel>thought"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "<think>"),
    "ibm-granite-granite-4.0": ("hermes", None),
    "llama-cpp-deepseek-r1": ("deepseek-r1", "<think>"),
    "llama-cpp-rwkv-world": (None, "<think>"),
    "meetkai-functionary-medium-v3.1": ("functionary", None),
    "meetkai-functionary-medium-v3.2": ("functionary-v3.2", None),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama", None),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama", None),
    "microsoft-Phi-3.5-mini-instruct": (None, None),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral-named", "[THINK]"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", None),
    "moonshotai-Kimi-K2": ("kimi", None),
    "openai-gpt-oss-120b": ("harmony", "<|channel|>analysis<|message|>"),
    "stepfun-ai-Step-3.5-Flash": ("qwen3-coder", "<think>"),
    "unsloth-Apriel-1.5": ("apriel", "Here are my reasoning steps:"),
    "unsloth-mistral-Devstral-Small-2507": ("mistral-named", None),
    "upstage-Solar-Open-100B": ("solar", "<|think|>"),
    "yandex/YandexGPT-5-Lite-8B-instruct": ("yandexgpt", None),
}


def test_the_family_is_found_in_the_template(templates: Mapping[str, str]) -> None:
    found = {name: (tool_format(templates[name]), reasoning_markers(templates[name])) for name in FAMILIES}
    assert {name: (s and s.name, r and r.opening) for name, (s, r) in found.items()} == FAMILIES


# ---------------------------------------------------------------- malformed calls, and markers that are tokens


def case_of(name: str, text: str, **more: Any) -> Case:
    return Case((name,), text, **more)


MALFORMED: list[tuple[str, str, list[str], str]] = [
    # Control tokens are no text; what stands between them is.
    ("mistralai-Mistral-Nemo-Instruct-2407", "Hm. [TOOL_CALLS][]", ["[TOOL_CALLS]"], "Hm. []"),
    ("unsloth-mistral-Devstral-Small-2507", "[TOOL_CALLS]nothing[ARGS]{}", ["[TOOL_CALLS]", "[ARGS]"], "nothing{}"),
    ("LFM2-8B-A1B", "<|tool_call_start|>[oh]<|tool_call_end|>!", ["<|tool_call_start|>", "<|tool_call_end|>"], "[oh]!"),
    (
        "google-gemma-4-31B-it",
        'Hm.<|tool_call>call:nothing{a:<|"|>b<|"|>}<tool_call|>',
        ["<|tool_call>", "<tool_call|>", '<|"|>'],
        "Hm.call:nothing{a:b}",
    ),
    (
        "openai-gpt-oss-120b",
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{oh}",
        ["<|channel|>", "<|message|>", "<|constrain|>"],
        "{oh}",
    ),
    (
        "openai-gpt-oss-120b",
        "<|channel|>commentary to=functions.nothing<|message|>{}",
        ["<|channel|>", "<|message|>"],
        "{}",
    ),
    ("openai-gpt-oss-120b", "Just text.", ["<|channel|>", "<|message|>"], "Just text."),
    (
        "openai-gpt-oss-120b",
        "<|channel|>final<|message|>Yes.<|end|>",
        ["<|channel|>", "<|message|>", "<|end|>"],
        "Yes.",
    ),
    # Where they are text, they stay, so that nothing that was written is lost.
    ("mistralai-Mistral-Nemo-Instruct-2407", "Hm. [TOOL_CALLS][]", [], "Hm. [TOOL_CALLS][]"),
    ("Qwen-Qwen2.5-7B-Instruct", "Hm. <tool_call>oh</tool_call>", [], "Hm. <tool_call>oh</tool_call>"),
    ("meetkai-functionary-medium-v3.2", "all\nIn Python:\n>>> 1 + 1\n2", [], "In Python:\n>>> 1 + 1\n2"),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "Action: go home.", [], "Action: go home."),
    ("fireworks-ai-llama-3-firefunction-v2", "import functools", [], "import functools"),
    ("meta-llama-Llama-3.1-8B-Instruct", '{"name": "nobody"}', [], '{"name": "nobody"}'),
]


@pytest.mark.parametrize(("name", "text", "special", "content"), MALFORMED)
def test_a_malformed_call_is_content_without_control_tokens(
    tokenizer: Tokenizer, templates: Mapping[str, str], name: str, text: str, special: list[str], content: str
) -> None:
    prompt = ">>>" if text.startswith("all\n") else ""
    form = form_of(templates[name], case_of(name, text, special=special, prompt=prompt), special={})
    assert read(form, [text]) == (content, "", [])
    assert read(form, [*text]) == (content, "", [])


def test_what_a_cut_answer_may_have_begun_is_not_shown(templates: Mapping[str, str]) -> None:
    hermes = form_of(templates["Qwen-Qwen2.5-7B-Instruct"], case_of("", ""))
    for text in ("Yes. <tool_c", "Yes. <tool_call>\n", 'Yes. <tool_call>\n{"name": "get_wea'):
        assert read(hermes, [text], cut=True) == ("Yes.", "", [])
        assert read(hermes, [text]) == (text, "", [])
    llama = form_of(templates["meta-llama-Llama-3.2-3B-Instruct"], case_of("", ""))
    assert read(llama, ['{"name": "get_wea'], cut=True) == ("", "", [])
    assert read(llama, ['{"answer": 4'], cut=True) == ('{"answer": 4', "", [])  # JSON that is not a call


def test_in_harmony_only_its_own_tokens_end_an_answer(templates: Mapping[str, str]) -> None:
    ends = {"<|return|>": {"special": True}, "<|call|>": {"special": True}, "<|end|>": {"special": True}}
    others = {text: {"special": True} for text in ("<|start|>", "<|channel|>", "<|message|>", "<|endoftext|>")}
    tokenizer = small_tokenizer({**ends, **others})
    template = ChatTemplate({"default": templates["openai-gpt-oss-120b"]})
    known = [token_id for text in ("<|endoftext|>", "<|end|>") if (token_id := tokenizer.token_to_id(text)) is not None]
    layout = template.layout(Conversation([{"role": "user", "content": "Hello"}]))
    found = template.ends_of_answer(tokenizer, known, layout, None)
    assert {*found} == {tokenizer.token_to_id(text) for text in ("<|endoftext|>", "<|return|>", "<|call|>")}


@pytest.mark.parametrize(
    ("name", "tools", "ends", "goes_on"),
    [
        ("upstage-Solar-Open-100B", False, ["<|flush|>", "<|calls|>"], ["<|end|>"]),
        ("GigaChat3-10B-A1.8B", False, ["<|message_sep|>"], []),
        ("GigaChat3-10B-A1.8B", True, [], ["<|message_sep|>"]),
        ("google-gemma-4-31B-it", True, ["<turn|>", "<|tool_response>"], []),
        ("GLM-4.6", False, ["<|user|>", "<|observation|>"], []),
        ("Qwen-Qwen3-0.6B", True, ["<|im_end|>"], []),
    ],
)
def test_the_tokens_that_end_an_answer(
    templates: Mapping[str, str], name: str, tools: bool, ends: list[str], goes_on: list[str]
) -> None:
    tokenizer = small_tokenizer({text: {"special": True} for text in (*ends, *goes_on)})
    template = ChatTemplate({"default": templates[name]})
    conversation = Conversation([{"role": "user", "content": "Hello"}])
    style = tool_format(templates[name]) if tools else None
    found = template.ends_of_answer(tokenizer, (), template.layout(conversation), style)
    assert {*found} == {tokenizer.token_to_id(text) for text in ends}


def test_messages_of_one_answer_have_a_line_break_between_them(templates: Mapping[str, str]) -> None:
    form = form_of(templates["openai-gpt-oss-120b"], case_of("", ""))
    text = "<|channel|>commentary<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>"
    assert read(form, [text]) == ("One.\nTwo.", "", [])
