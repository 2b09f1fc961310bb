"""Switches of thinking in chat templates: found by rendering, told under the template's own names."""

from pathlib import Path
from typing import Any

import pytest

from edgegen.chat import ChatTemplate, Conversation
from edgegen.errors import ConversationError
from tests.runtime.chat.material import import_jinja_template_renderer

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
SWITCHED = "{{ messages[0].content }}|{{ '<think>' if enable_thinking else '<think></think>' }}"
LEVELS = "{{ reasoning_effort | default('medium') }}|{{ messages[0].content }}"
ALWAYS = "{{ messages[0].content }}<think>"
NEVER = "{{ messages[0].content }}"

SWITCHES = {
    "Apertus-8B-Instruct": "enable_thinking",
    "Bielik-11B-v3.0-Instruct": "enable_thinking",
    "ByteDance-Seed-OSS": "thinking_budget",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "enable_thinking",
    "GLM-4.6": "enable_thinking",
    "GLM-4.7-Flash": "enable_thinking",
    "HuggingFaceTB-SmolLM3-3B": "enable_thinking",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "enable_thinking",
    "NVIDIA-Nemotron-Nano-v2": "/no_think",
    "Qwen-QwQ-32B": "enable_thinking",
    "Qwen-Qwen3-0.6B": "enable_thinking",
    "Qwen3.5-4B": "enable_thinking",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "enable_thinking",
    "deepseek-ai-DeepSeek-V3.1": "enable_thinking",
    "deepseek-ai-DeepSeek-V3.2": "enable_thinking",
    "google-gemma-4-31B-it": "enable_thinking",
    "google-gemma-4-31B-it-interleaved": "enable_thinking",
    "ibm-granite-granite-3.3-2B-Instruct": "thinking",
    "llama-cpp-rwkv-world": "enable_thinking",
    "openai-gpt-oss-120b": "",
    "upstage-Solar-Open-100B": "reasoning_effort",
}
"""Variable that switches thinking off in each of the 54 templates that can be told anything; gpt-oss has levels
only."""


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, {"bos_token": "<s>", "eos_token": "</s>"})


def asked(source: str, thinking: bool | None = None, effort: str | None = None, **variables: Any) -> str:
    template = template_of(source)
    return template.render(template.asked_to_think(Conversation(HELLO, variables=variables), thinking, effort))


def test_the_switches_of_real_templates(test_data: Path) -> None:
    """Each renders with its switch what transformers renders with it."""
    oracle = import_jinja_template_renderer()
    found = dict[str, str]()
    for path in sorted((test_data / "templates" / "llamacpp").glob("*.jinja")):
        source = path.read_text("utf-8")
        template = template_of(source)
        switch = template.thinking_switch()
        if not switch.is_there:
            continue
        found[path.stem] = "/no_think" if switch.words else next(iter(switch.off or {}), "")
        for thinking in (True, False) if switch.can_switch else ():
            shown = template.render(template.asked_to_think(Conversation(HELLO), thinking, None))
            messages = [{"role": "system", "content": "/think" if thinking else "/no_think"}, *HELLO]
            variables = (switch.on if thinking else switch.off) or {}
            expected, _ = oracle(
                [messages if switch.words else HELLO],
                chat_template=source,
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
                **variables,
            )
            assert shown == expected[0], path.stem
    assert found == SWITCHES


@pytest.mark.parametrize(
    ("thinking", "effort", "end"),
    [
        (None, None, "<think></think>"),
        (True, None, "<think>"),
        (False, None, "<think></think>"),
        (None, "none", "<think></think>"),
        *((None, effort, "<think>") for effort in ("minimal", "low", "medium", "high", "xhigh", "max")),
    ],
)
def test_a_switch_is_on_at_every_effort_but_none(thinking: bool | None, effort: str | None, end: str) -> None:
    assert asked(SWITCHED, thinking, effort) == f"Hello|{end}"


NEAREST = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


@pytest.mark.parametrize(("effort", "level"), NEAREST.items())
def test_an_effort_is_the_nearest_level_that_a_template_knows(effort: str, level: str) -> None:
    assert asked(LEVELS, None, effort) == f"{level}|Hello"


def test_a_template_s_own_levels_are_told_as_they_are() -> None:
    source = (
        "{% if reasoning_effort == 'none' %}-{% elif reasoning_effort == 'max' %}+{% endif %}{{ messages[0].content }}"
    )
    assert [asked(source, None, effort) for effort in ("none", "low", "max")] == ["-Hello", "+Hello", "+Hello"]
    assert asked(source, False) == "-Hello"


def test_a_name_without_effect_is_no_switch() -> None:
    source = "{% set enable_thinking = enable_thinking %}" + ALWAYS
    assert not template_of(source).thinking_switch().is_there
    with pytest.raises(ConversationError, match="always thinks aloud"):
        asked(source, False)


@pytest.mark.parametrize(
    ("source", "thinking", "effort", "said"),
    [
        (NEVER, True, None, "thinking: True cannot be had, as this model does not think aloud: leave it out."),
        (NEVER, None, "low", "reasoning_effort: 'low' cannot be had, as this model does not think aloud"),
        (ALWAYS, False, None, "thinking: False cannot be had, as this model always thinks aloud: leave it out, or end"),
        (ALWAYS, None, "high", "'high' cannot be had, as this model always thinks aloud, as much as it sees fit"),
        (LEVELS, None, "none", "'none' cannot be had, as this model always thinks aloud: 'low' is the least effort"),
    ],
)
def test_what_a_model_cannot_do_is_refused(source: str, thinking: bool | None, effort: str | None, said: str) -> None:
    with pytest.raises(ConversationError, match=said):
        asked(source, thinking, effort)


@pytest.mark.parametrize(
    ("source", "thinking", "effort"),
    [(NEVER, False, None), (NEVER, None, "none"), (ALWAYS, True, None), (ALWAYS, None, "medium"), (LEVELS, True, None)],
)
def test_what_a_model_does_anyway_may_be_asked(source: str, thinking: bool | None, effort: str | None) -> None:
    assert asked(source, thinking, effort) == asked(source)


def test_a_word_in_the_system_message_is_added_to_it(test_data: Path) -> None:
    source = (test_data / "templates" / "llamacpp" / "NVIDIA-Nemotron-Nano-v2.jinja").read_text("utf-8")
    template, said = template_of(source), [{"role": "system", "content": "Be brief."}, *HELLO]
    off = template.asked_to_think(Conversation(said), False, None)
    assert off.messages[0]["content"] == "Be brief.\n/no_think"
    assert said[0]["content"] == "Be brief."
    assert template.render(off) == template.render(Conversation(said)).removesuffix("\n") + "</think>"


def test_a_budget_is_told_to_a_template_that_reads_one(test_data: Path) -> None:
    source = (test_data / "templates" / "llamacpp" / "ByteDance-Seed-OSS.jinja").read_text("utf-8")
    template, said = template_of(source), Conversation(HELLO)
    for thinking in (None, True):
        assert "which is 512." in template.render(template.asked_to_think(said, thinking, None, 512))
    off = [template.asked_to_think(said, False, None, budget) for budget in (None, 512)]
    assert template.render(off[0]) == template.render(off[1]) != template.render(said)


def test_variables_that_a_template_does_not_read_are_refused() -> None:
    assert asked(SWITCHED, enable_thinking=True) == "Hello|<think>"
    with pytest.raises(ConversationError, match=r"'enable_thinkin' is not read .*did you mean 'enable_thinking'"):
        asked(SWITCHED, enable_thinkin=True)


def test_a_switch_by_another_template_s_name_is_this_one_s() -> None:
    template = template_of(SWITCHED)
    conversation = Conversation(HELLO, variables={"thinking": True})
    assert template.render(template.asked_to_think(conversation, None, None)) == "Hello|<think>"
    plain = template_of(NEVER)
    off = Conversation(HELLO, variables={"enable_thinking": False})  # what it does anyway
    assert plain.render(plain.asked_to_think(off, None, None)) == "Hello"
    with pytest.raises(ConversationError, match="does not think aloud"):
        plain.asked_to_think(Conversation(HELLO, variables={"enable_thinking": True}), None, None)


def test_variables_that_contradict_are_refused() -> None:
    with pytest.raises(ConversationError, match="enable_thinking says otherwise"):
        asked(SWITCHED, False, enable_thinking=True)
    template = template_of(SWITCHED)
    with pytest.raises(ConversationError, match="thinking says otherwise"):
        template.asked_to_think(Conversation(HELLO, variables={"thinking": True}), False, None)
    with pytest.raises(ConversationError, match="true or false expected, found 'yes'"):
        template.asked_to_think(Conversation(HELLO, variables={"thinking": "yes"}), None, None)
