"""Chat templates, tokenizers and conversations that the tests of chats share."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import tokenizers

from edgegen.tokenizer import LibraryBackend, Tokenizer
from tests.oracle import import_transformers

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
GIGACHAT = {"bos_token": "<s>", "additional_special_tokens": ["<|role_sep|>", "<|message_sep|>", "[", "]"]}
"""The special tokens of a template that does not go without them."""
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & tomorrow",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "A city's name"}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Ålesund"}}}
USER = {"role": "user", "content": "Hello, 2 < 3?"}
PLAIN = [USER]
TURNS = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n  Yes.  "},
    {"role": "user", "content": " Sure?\n"},
]
CALLS = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
    {"role": "user", "content": "Thanks"},
]
UNUSUAL = [{"role": "assistant", "content": "I begin."}, {"role": "assistant", "content": "And go on."}]
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {"plain": PLAIN, "turns": TURNS, "calls": CALLS, "unusual": UNUSUAL}

GEMMA = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
"""Refuses the system, as Gemma does; continue it with what is to be rendered."""
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
    "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
)


def template_sources(test_data: Path) -> dict[str, str]:
    """The 54 files and the 35 of the goldens, by name."""
    files = sorted((test_data / "templates" / "llamacpp").glob("*.jinja"))
    assert len(files) == 54
    return {path.stem: path.read_text("utf-8") for path in files} | {
        golden.name: golden.template for golden in goldens(test_data)
    }


@dataclass(frozen=True)
class Golden:
    """One of llama.cpp's: ``plain`` where jinja2 alone gives ``expected``."""

    name: str
    template: str
    special_tokens: dict[str, Any]
    messages: list[dict[str, Any]]
    add_generation_prompt: bool
    expected: str
    plain: bool


def goldens(test_data: Path) -> list[Golden]:
    entries = json.loads((test_data / "templates" / "llamacpp_chat_goldens.json").read_text("utf-8"))
    return [
        Golden(
            name=entry["name"],
            template=entry["template"],
            special_tokens={"bos_token": entry["bos_token"], "eos_token": entry["eos_token"]},
            messages=ast.literal_eval(messages) if isinstance(messages := entry["messages"], str) else messages,
            add_generation_prompt=entry["add_generation_prompt"],
            expected=entry["expected"],
            plain=entry["jinja2_matches"],
        )
        for entry in entries
    ]


@dataclass(frozen=True)
class ChatModel:
    """A real tokenizer and a template for it; ``oracle`` is transformers' tokenizer."""

    tokenizer: Tokenizer
    template: str
    special_tokens: dict[str, Any]
    oracle: Any

    def reference_ids(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        return self.oracle.apply_chat_template(messages, tokenize=True, **options)


def real_model(test_data: Path, name: str) -> ChatModel:
    """``qwen2.5``, ``phi-3`` with their own templates; ``llama3``, ``mistral``, ``llama2``, ``gpt2`` with another."""
    folder = test_data / "tokenizers" / {"mistral": "mistral/hf-v1"}.get(name, name)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    lent = {
        "llama3": "meta-llama-Llama-3.1-8B-Instruct",
        "mistral": "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)",
        "llama2": "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)",
        "gpt2": "mlabonne/AlphaMonarch-7B",
    }
    template = template_sources(test_data)[lent[name]] if name in lent else config["chat_template"]
    special = {key: value for key in ("bos_token", "eos_token") if isinstance(value := config.get(key), str)}
    return chat_model(folder / "tokenizer.json", template, special)


def chat_model(file: Path, template: str, special_tokens: dict[str, Any]) -> ChatModel:
    transformers = import_transformers()
    oracle = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), chat_template=template, **special_tokens)
    return ChatModel(Tokenizer.from_file(file), template, special_tokens, oracle)


def small_tokenizer(
    control: Mapping[str, Mapping[str, Any]], words: Mapping[str, int] | None = None, **parts: Any
) -> Tokenizer:
    """Characters as tokens (BPE without merges), with these added tokens; ``parts``: normalizer, pre_tokenizer."""
    library = cast(Any, tokenizers)
    vocabulary = {chr(n): n - 32 for n in range(32, 127)} | {"\n": 95, "▁": 96, "?!": 97}
    backend = library.Tokenizer(library.models.BPE(vocab=vocabulary | dict(words or {}), merges=[], unk_token="?!"))
    backend.decoder = library.decoders.Fuse()
    for name, part in parts.items():
        setattr(backend, name, part)
    for content, flags in control.items():
        backend.add_tokens([library.AddedToken(content, **flags)])
    return Tokenizer(LibraryBackend(backend))


def import_jinja_template_renderer() -> Any:
    import_transformers()
    return pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
