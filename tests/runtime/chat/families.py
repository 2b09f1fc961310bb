"""Answers as the models of each template write them, by hand from their templates and their makers' documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tokenizers

from edgegen.chat.layout import answer_layout
from edgegen.chat.reasoning import reasoning_markers
from edgegen.chat.reply import ReplyFormat
from edgegen.chat.tool_formats import HERMES, tool_format
from edgegen.chat.tools import ToolChoice, Tools
from edgegen.tokenizer import LibraryBackend, StreamingDetokenizer, Tokenizer
from tests.runtime.chat.material import template_sources

Call = tuple[str, dict[str, Any]]
OSLO: Call = ("get_weather", {"city": "Oslo"})
LOOK: Call = ("look_up", {"days": 3, "city": "Rome"})
BERGEN: Call = ("get_weather", {"city": 'Ber"gen'})
THOUGHT = "I need the weather."
SAID = "I look."

_ARGUMENTS: dict[str, Any] = {"days": {"type": "integer"}, "city": {"type": "string"}}
DEFINITIONS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {
                "type": "object",
                "properties": {key: _ARGUMENTS[key] for key in keys},
                "required": [*keys],
                "additionalProperties": False,
            },
        },
    }
    for name, keys in (("get_weather", ("city",)), ("look_up", ("days", "city")))
]


@dataclass(frozen=True)
class Case:
    """One answer.

    Attributes:
        templates: the names of those whose models write so.
        special: the control tokens in it that are special tokens of the models.
        prompt: how the prompt ends.
        free: a model may write so, but a constraint would have it written otherwise.
    """

    templates: Sequence[str]
    text: str
    content: str = ""
    thought: str = ""
    calls: Sequence[Call] = ()
    special: Sequence[str] = ()
    prompt: str = ""
    free: bool = False


_QWEN = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen-QwQ-32B",
    "MiMo-VL",
    "Bielik-11B-v3.0-Instruct",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "ibm-granite-granite-4.0",
    "HuggingFaceTB-SmolLM3-3B",  # its template has no tools: they are described, with this format
    "google-gemma-2-2b-it",
    "microsoft-Phi-3.5-mini-instruct",
    "llama-cpp-rwkv-world",
)
_QWEN_THINKS = (
    "Qwen-Qwen3-0.6B",
    "Qwen-QwQ-32B",
    "Bielik-11B-v3.0-Instruct",
    "HuggingFaceTB-SmolLM3-3B",
    "llama-cpp-rwkv-world",
)
_CODER = (
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "StepFun3.5-Flash",
    "stepfun-ai-Step-3.5-Flash",
)
_KIMI = ("Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2")
_KIMI_TOKENS = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
_LLAMA = ("meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct")
_GEMMA = ("google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved")
_GEMMA_TOKENS = ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_response>")
_HARMONY = ("openai-gpt-oss-120b",)
_HARMONY_TOKENS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>")
_SOLAR = ("upstage-Solar-Open-100B",)
_SOLAR_TOKENS = (
    *("<|begin|>", "<|end|>", "<|think|>", "<|content|>", "<|flush|>", "<|tool_calls|>", "<|calls|>"),
    *("<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"),
)
_COMMAND = ("CohereForAI-c4ai-command-r7b-12-2024-tool_use",)
_COMMAND_TOKENS = (
    *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
_COMMAND_PLUS = ("CohereForAI-c4ai-command-r-plus-tool_use",)
_DEEPSEEK_TOKENS = (
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
)
_APERTUS = ("Apertus-8B-Instruct",)
_APERTUS_TOKENS = ("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>")
_LFM2 = ("LFM2-8B-A1B", "LFM2.5-Instruct")
_LFM2_TOKENS = ("<|tool_call_start|>", "<|tool_call_end|>")
_GLM = ("GLM-4.6", "GLM-4.7-Flash")
_MISTRAL_TOKENS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")
_APRIEL = ("Apriel-1.6-15b-Thinker-fixed", "unsloth-Apriel-1.5")
_FUNCTIONARY = ("meetkai-functionary-medium-v3.2",)
_NEMOTRON = ("NVIDIA-Nemotron-Nano-v2",)
_R1 = ("llama-cpp-deepseek-r1",)
_SEED = ("ByteDance-Seed-OSS",)
_MINIMAX = ("MiniMax-M2",)
_GRANITE = ("ibm-granite-granite-3.3-2B-Instruct",)
_GIGACHAT = ("GigaChat3-10B-A1.8B",)
_DSML = "｜DSML｜"
_LOOK_ENTRY = '{"tool_name": "look_up", "parameters": {"days": 3, "city": "Rome"}}'
_LOOK_JSON = '{"days": 3, "city": "Rome"}'
_HERMES_CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "look_up", "arguments": {_LOOK_JSON}}}\n</tool_call>'
)
_LIST = (
    f'[{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}, {{"name": "look_up", "arguments": {_LOOK_JSON}}}]'
)

CASES = (
    Case(_QWEN, f"{SAID}\n{_HERMES_CALLS}", SAID, "", (OSLO, LOOK)),
    Case(_QWEN_THINKS, f"<think>\n{THOUGHT}\n</think>\n\n{_HERMES_CALLS}", "", THOUGHT, (OSLO, LOOK)),
    Case(_QWEN_THINKS, f"{THOUGHT}\n</think>\n\n{SAID}", SAID, THOUGHT, prompt="<|im_start|>assistant\n<think>\n"),
    Case(_QWEN_THINKS, SAID, SAID, prompt="<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    Case(
        _CODER,
        f"{SAID}\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=look_up>\n<parameter=days>\n3\n</parameter>\n<parameter=city>\nRome\n</parameter>\n"
        "</function>\n</tool_call>",
        SAID,
        "",
        (OSLO, LOOK),
    ),
    Case(_CODER[1:], f"{THOUGHT}\n</think>\n\n{SAID}", SAID, THOUGHT, prompt="<|im_start|>assistant\n<think>\n"),
    Case(
        _SEED,
        f"<seed:think>{THOUGHT}</seed:think>\n{SAID}\n\n<seed:tool_call>\n<function=look_up>\n<parameter=days>3"
        "</parameter>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
        SAID,
        THOUGHT,
        (LOOK,),
    ),
    Case(
        _GLM[:1],
        f"<think>{THOUGHT}</think>\n{SAID}\n<tool_call>look_up\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
        "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
        SAID,
        THOUGHT,
        (LOOK,),
    ),
    Case(
        _GLM,
        f"{THOUGHT}</think>{SAID}<tool_call>look_up<arg_key>days</arg_key><arg_value>3</arg_value>"
        "<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
        SAID,
        THOUGHT,
        (LOOK,),
        prompt="<|assistant|><think>",
    ),
    Case(_APRIEL, f"{SAID}\n<tool_calls>{_LIST}</tool_calls>", SAID, "", (OSLO, LOOK)),
    Case(
        _APRIEL,
        f"{THOUGHT}\n[BEGIN FINAL RESPONSE]\n{SAID}\n<tool_calls>{_LIST}</tool_calls>\n[END FINAL RESPONSE]",
        SAID,
        THOUGHT,
        (OSLO, LOOK),
        prompt="<|begin_assistant|>\nHere are my reasoning steps:\n",
    ),
    Case(
        _APRIEL,
        f"Here are my reasoning steps:\n{THOUGHT}\n[BEGIN FINAL RESPONSE]\n{SAID}\n[END FINAL RESPONSE]\n",
        SAID,
        THOUGHT,
    ),
    Case(
        _NEMOTRON,
        f"{THOUGHT}\n</think>\n\n<TOOLCALL>{_LIST}</TOOLCALL>",
        "",
        THOUGHT,
        (OSLO, LOOK),
        prompt="<SPECIAL_11>Assistant\n<think>\n",
    ),
    Case(_GRANITE, f"<|tool_call|>{_LIST}", "", "", (OSLO, LOOK), special=("<|tool_call|>",)),
    Case(_GRANITE, f"<think>{THOUGHT}</think>\n\n<response>{SAID}</response>", SAID, THOUGHT),
    Case(_GRANITE, "Write <response> to </response> it.", "Write <response> to </response> it."),
    Case(
        ("Mistral-Small-3.2-24B-Instruct-2506",),
        f'{SAID}[TOOL_CALLS]get_weather[CALL_ID]abcdefgh0[ARGS]{{"city": "Oslo"}}'
        f"[TOOL_CALLS]look_up[CALL_ID]abcdefgh1[ARGS]{_LOOK_JSON}",
        SAID,
        "",
        (OSLO, LOOK),
        _MISTRAL_TOKENS,
    ),
    Case(
        ("unsloth-mistral-Devstral-Small-2507", "mistralai-Ministral-3-14B-Reasoning-2512"),
        f'{SAID}[TOOL_CALLS]get_weather[ARGS]{{"city": "Oslo"}}[TOOL_CALLS]look_up[ARGS]{_LOOK_JSON}',
        SAID,
        "",
        (OSLO, LOOK),
        _MISTRAL_TOKENS,
    ),
    Case(
        ("mistralai-Ministral-3-14B-Reasoning-2512",),
        f"[THINK]{THOUGHT}[/THINK]{SAID}",
        SAID,
        THOUGHT,
        (),
        _MISTRAL_TOKENS,
    ),
    Case(
        ("mistralai-Mistral-Nemo-Instruct-2407",),
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "abcdefgh0"}]',
        "",
        "",
        (OSLO,),
        _MISTRAL_TOKENS,
    ),
    Case(
        _KIMI,
        f"{SAID}<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Oslo"}<|tool_call_end|><|tool_call_begin|>functions.look_up:1<|tool_call_argument_begin|>'
        f"{_LOOK_JSON}<|tool_call_end|><|tool_calls_section_end|>",
        SAID,
        "",
        (OSLO, LOOK),
        _KIMI_TOKENS,
    ),
    Case(("Kimi-K2-Thinking",), f"<think>{THOUGHT}</think>{SAID}", SAID, THOUGHT),
    Case(
        _R1,
        f"{THOUGHT}\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Oslo"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n'
        f"{_LOOK_JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        THOUGHT,
        (OSLO, LOOK),
        _DEEPSEEK_TOKENS,
        prompt="<｜Assistant｜><think>\n",
    ),
    Case(
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
        f"{THOUGHT}\n</think>\n\n{SAID}",
        SAID,
        THOUGHT,
        prompt="<｜Assistant｜><think>\n",
    ),
    Case(("deepseek-ai-DeepSeek-V3.1",), f"{THOUGHT}</think>{SAID}", SAID, THOUGHT, prompt="<｜Assistant｜><think>"),
    Case(
        ("deepseek-ai-DeepSeek-V3.2",),
        f'{THOUGHT}</think>{SAID}\n\n<{_DSML}function_calls>\n<{_DSML}invoke name="get_weather">\n'
        f'<{_DSML}parameter name="city" string="true">Oslo</{_DSML}parameter>\n</{_DSML}invoke>\n'
        f'<{_DSML}invoke name="look_up">\n<{_DSML}parameter name="days" string="false">3</{_DSML}parameter>\n'
        f'<{_DSML}parameter name="city" string="true">Rome</{_DSML}parameter>\n</{_DSML}invoke>\n'
        f"</{_DSML}function_calls>",
        SAID,
        THOUGHT,
        (OSLO, LOOK),
        (_DSML,),
        prompt="<｜Assistant｜><think>",
    ),
    Case(
        _SOLAR,
        f"<|think|>{THOUGHT}<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abcdefgh0<|tool_call:name|>"
        'get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|><|tool_call:begin|>abcdefgh1<|tool_call:name|>'
        f"look_up<|tool_call:args|>{_LOOK_JSON}<|tool_call:end|>",
        "",
        THOUGHT,
        (OSLO, LOOK),
        _SOLAR_TOKENS,
    ),
    Case(_SOLAR, f"<|think|>{THOUGHT}<|end|><|begin|>assistant<|content|>{SAID}", SAID, THOUGHT, (), _SOLAR_TOKENS),
    Case(
        _SOLAR,
        f"<|content|>{SAID}",
        SAID,
        "",
        (),
        _SOLAR_TOKENS,
        "<|begin|>assistant<|think|><|end|><|begin|>assistant",
    ),
    Case(
        _COMMAND,
        f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}},\n'
        f'    {{"tool_call_id": "1", "tool_name": "look_up", "parameters": {_LOOK_JSON}}}\n]<|END_ACTION|>',
        "",
        THOUGHT,
        (OSLO, LOOK),
        _COMMAND_TOKENS,
    ),
    Case(_COMMAND, f"<|START_RESPONSE|>{SAID}<|END_RESPONSE|>", SAID, "", (), _COMMAND_TOKENS),
    Case(
        _COMMAND,
        f"{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{SAID}<|END_RESPONSE|>",
        SAID,
        THOUGHT,
        (),
        _COMMAND_TOKENS,
        "<|CHATBOT_TOKEN|><|START_THINKING|>",
    ),
    Case(
        _COMMAND_PLUS,
        'Plan: the weather.\nAction: ```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": {\n'
        f'            "city": "Oslo"\n        }}\n    }},\n    {_LOOK_ENTRY}\n]```',
        "Plan: the weather.",
        "",
        (OSLO, LOOK),
    ),
    Case(
        _COMMAND_PLUS,
        'Action:```json\n[\n    {\n        "tool_name": "directly_answer",\n        "parameters": {}\n    }\n]```',
        free=True,
    ),
    Case(_MINIMAX, f"{THOUGHT}\n</think>\n\n{SAID}", SAID, THOUGHT, prompt="]~b]ai\n<think>\n"),
    Case(
        _MINIMAX,
        f'{SAID}\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n'
        '</invoke>\n<invoke name="look_up">\n<parameter name="days">3</parameter>\n'
        '<parameter name="city">Rome</parameter>\n</invoke>\n</minimax:tool_call>',
        SAID,
        "",
        (OSLO, LOOK),
    ),
    Case(
        ("GigaChat3.1-10B-A1.8B",),
        f'{SAID}<|function_call|>{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}',
        SAID,
        "",
        (OSLO,),
        ("<|function_call|>",),
    ),
    Case(
        _GIGACHAT,
        f"{SAID}<|message_sep|>\n\nfunction call<|role_sep|>\n"
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        SAID,
        "",
        (OSLO,),
        ("<|message_sep|>", "<|role_sep|>"),
    ),
    Case(_GIGACHAT, f"{SAID}<|message_sep|>", SAID, "", (), ("<|message_sep|>", "<|role_sep|>")),
    Case(
        ("meetkai-functionary-medium-v3.1",),
        f'{SAID}<function=get_weather>{{"city": "Oslo"}}</function><function=look_up>{_LOOK_JSON}</function>',
        SAID,
        "",
        (OSLO, LOOK),
    ),
    Case(
        _FUNCTIONARY,
        f'all\n{SAID}>>>get_weather\n{{"city": "Oslo"}}>>>look_up\n{_LOOK_JSON}',
        SAID,
        "",
        (OSLO, LOOK),
        prompt="<|start_header_id|>assistant<|end_header_id|>\n\n>>>",
    ),
    Case(
        _FUNCTIONARY,
        'get_weather\n{"city": "Oslo"}',
        "",
        "",
        (OSLO,),
        prompt="<|start_header_id|>assistant<|end_header_id|>\n\n>>>",
    ),
    Case(
        _LLAMA,
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        "",
        "",
        (OSLO,),
        ("<|python_tag|>",),
    ),
    Case(
        _LLAMA,
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        "",
        "",
        (OSLO,),
        ("<|python_tag|>",),
    ),
    Case(_LLAMA, '<|python_tag|>get_weather.call(city="Oslo")', "", "", (OSLO,), ("<|python_tag|>",), free=True),
    Case(
        ("fireworks-ai-llama-3-firefunction-v2",),
        f"{SAID} functools{_LIST}",
        SAID,
        "",
        (OSLO, LOOK),
    ),
    Case(
        _GEMMA,
        f'<|channel>thought\n{THOUGHT}\n<channel|><|tool_call>call:get_weather{{city:<|"|>Ber"gen<|"|>}}<tool_call|>'
        '<|tool_call>call:look_up{city:<|"|>Rome<|"|>,days:3}<tool_call|>',
        "",
        THOUGHT,
        (BERGEN, LOOK),
        _GEMMA_TOKENS,
    ),
    Case(_GEMMA, SAID, SAID, "", (), _GEMMA_TOKENS, "<|turn>model\n<|channel>thought\n<channel|>"),
    Case(
        _GEMMA,
        f"{SAID}<|channel>thought\n{THOUGHT}\n<channel|>Yes.",
        f"{SAID}Yes.",
        THOUGHT,
        (),
        _GEMMA_TOKENS,
    ),
    Case(
        _APERTUS,
        f"<|inner_prefix|>{THOUGHT}<|inner_suffix|>{SAID}<|tools_prefix|>"
        f'[{{"get_weather": {{"city": "Oslo"}}}}, {{"look_up": {_LOOK_JSON}}}]<|tools_suffix|>',
        SAID,
        THOUGHT,
        (OSLO, LOOK),
        _APERTUS_TOKENS,
    ),
    Case(
        _LFM2,
        f"{SAID}<|tool_call_start|>[get_weather(city=\"Oslo\"), look_up(days=3, city='Rome')]<|tool_call_end|>",
        SAID,
        "",
        (OSLO, LOOK),
        _LFM2_TOKENS,
    ),
    Case(
        _LFM2,
        f"<|tool_call_start|>{_LIST}<|tool_call_end|>{SAID}",
        SAID,
        "",
        (OSLO, LOOK),
        _LFM2_TOKENS,
        free=True,
    ),
    Case(_LFM2[1:], f"<think>{THOUGHT}</think>{SAID}", SAID, THOUGHT, (), _LFM2_TOKENS),
    Case(
        _HARMONY,
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary<|message|>{SAID}<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Oslo"}',
        SAID,
        THOUGHT,
        (OSLO,),
        _HARMONY_TOKENS,
        "<|start|>assistant",
    ),
    Case(
        _HARMONY,
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant to=functions.look_up<|channel|>"
        f"commentary json<|message|>{_LOOK_JSON}",
        "",
        THOUGHT,
        (LOOK,),
        _HARMONY_TOKENS,
        "<|start|>assistant",
    ),
    Case(
        _HARMONY,
        f" to=functions.look_up<|channel|>commentary<|message|>{_LOOK_JSON}",
        "",
        "",
        (LOOK,),
        _HARMONY_TOKENS,
        "<|start|>assistant",
    ),
    Case(
        _HARMONY,
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis<|message|>{THOUGHT}<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{SAID}",
        SAID,
        f"Hm.\n{THOUGHT}",
        (),
        _HARMONY_TOKENS,
        "<|start|>assistant",
    ),
)
CHATGLM4 = Case(("ChatGLM4",), f"look_up\n{_LOOK_JSON}", "", "", (LOOK,))
YANDEX = Case(("yandex/YandexGPT-5-Lite-8B-instruct",), f"[TOOL_CALL_START]look_up\n{_LOOK_JSON}", "", "", (LOOK,))
WRITTEN = [(name, case) for case in (*CASES, CHATGLM4, YANDEX) for name in case.templates]


def form_of(
    source: str, case: Case, choice: ToolChoice = "auto", special: Mapping[str, int] | None = None
) -> ReplyFormat:
    """How the answers of a template are read, with the tokens that are special tokens of its models."""
    tools = Tools.read(DEFINITIONS, choice)
    form = ReplyFormat(
        reasoning_markers(source), style=tool_format(source) or HERMES, tools=tools, layout=answer_layout(source)
    )
    names = (
        frozenset(text for text in form.markers if text in case.special) if special is not None else frozenset[str]()
    )
    return ReplyFormat(form.reasoning, style=form.style, tools=tools, layout=form.layout, special=names).following(
        case.prompt
    )


def special_tokenizer(test_data: Path) -> Tokenizer:
    """GPT-2's tokenizer with the control tokens of all families."""
    library = cast(Any, tokenizers)
    backend = library.Tokenizer.from_file(str(test_data / "tokenizers" / "gpt2" / "tokenizer.json"))
    texts = dict.fromkeys(token for case in CASES for token in case.special)
    backend.add_special_tokens([library.AddedToken(text, special=True) for text in texts])
    return Tokenizer(LibraryBackend(backend))


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text as it is streamed, token by token."""
    shown = [token_id for token_id, token in tokenizer.added_tokens.items() if token.special]
    stream = StreamingDetokenizer(tokenizer, shown_ids=shown)
    return [*map(stream.push, tokenizer.encode(text, add_special_tokens=False)), stream.finish()]


def sources(test_data: Path) -> dict[str, str]:
    """Templates by name."""
    return template_sources(test_data)
