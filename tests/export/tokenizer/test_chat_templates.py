"""Chat templates from all the files that have them, and how the bundle has them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgegen.chat.conversation import Conversation
from edgegen.chat.template import ChatTemplate
from edgegen.errors import CheckpointError
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.tokenizer.chat_templates import settle_templates, templates_of
from tests.export.bundles import Listener
from tests.export.tokenizer.material import files_of, load
from tests.oracle import import_transformers

CONFIG, JINJA, OF_PROCESSOR = "tokenizer_config.json", "chat_template.jinja", "chat_template.json"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LIST = [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


LAYOUTS: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {
    "none": ({CONFIG: b"{}"}, {}),
    "null": ({CONFIG: as_json({"chat_template": None})}, {}),
    "config": ({CONFIG: as_json({"chat_template": "c"})}, {}),
    "a list": ({CONFIG: as_json({"chat_template": LIST})}, {}),
    "jinja": ({CONFIG: as_json({"chat_template": "c"}), JINJA: b"j"}, {}),
    "jinja beside a list": ({CONFIG: as_json({"chat_template": LIST}), JINJA: b"j"}, {}),
    "jinja and more": ({CONFIG: as_json({"chat_template": "c"}), JINJA: b"j"}, {"rag": b"r", "tool_use": b"t"}),
    "more alone": ({CONFIG: as_json({"chat_template": "c"})}, {"rag": b"r"}),
    "config and a processor's": (
        {CONFIG: as_json({"chat_template": "c"}), OF_PROCESSOR: as_json({"chat_template": "p"})},
        {},
    ),
    "jinja and a processor's": ({CONFIG: b"{}", JINJA: b"j", OF_PROCESSOR: as_json({"chat_template": "p"})}, {}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_templates_are_those_of_transformers(test_data: Path, tmp_path: Path, name: str) -> None:
    files, more = LAYOUTS[name]
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    for file, data in more.items():
        (tmp_path / "additional_chat_templates").mkdir(exist_ok=True)
        (tmp_path / "additional_chat_templates" / f"{file}.jinja").write_bytes(data)
    shutil.copyfile(test_data / "models" / "qwen2-stories-0.9m" / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    oracle: Any = import_transformers().AutoTokenizer.from_pretrained(str(tmp_path)).chat_template
    expected = {"default": oracle} if isinstance(oracle, str) else dict(oracle or {})
    assert templates_of(files_of(tmp_path)) == expected


def no_warning(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize(("value", "place"), [("p", JINJA), (LIST, CONFIG), ({"default": "d", "rag": "r"}, CONFIG)])
def test_a_processors_template_serves_where_there_is_no_other(value: Any, place: str) -> None:
    files = {CONFIG: as_json({"chat_template": None}), OF_PROCESSOR: as_json({"chat_template": value})}
    settled = settle_templates(files, {}, no_warning)
    assert OF_PROCESSOR not in settled
    assert place in settled
    assert templates_of(settled) == ({"default": "p"} if value == "p" else {"default": "d", "rag": "r"})


@pytest.mark.parametrize(
    ("files", "kept"),
    [({CONFIG: as_json({"chat_template": "c"})}, "c"), ({JINJA: b"j", CONFIG: as_json({"chat_template": "p"})}, "j")],
)
def test_a_processors_template_that_differs_is_said_to_be_left_out(files: dict[str, bytes], kept: str) -> None:
    said = list[str]()
    settled = settle_templates({**files, OF_PROCESSOR: as_json({"chat_template": "p"})}, {}, said.append)
    assert templates_of(settled) == {"default": kept}
    assert [text.split(":")[0] for text in said] == [f"{OF_PROCESSOR} is left out"]
    same = settle_templates({**files, OF_PROCESSOR: as_json({"chat_template": kept})}, {}, no_warning)
    assert templates_of(same) == {"default": kept}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({OF_PROCESSOR: b"{}"}, r"chat_template\.json: there is no chat_template in it"),
        ({OF_PROCESSOR: b"["}, r"chat_template\.json: not JSON"),
        ({OF_PROCESSOR: as_json({"chat_template": 5})}, r"chat_template\.json: chat_template is neither"),
        ({CONFIG: as_json({"chat_template": [{"name": "x"}]})}, r"tokenizer_config\.json: chat_template is neither"),
        ({JINJA: b"\xff"}, r"chat_template\.jinja is not UTF-8"),
    ],
)
def test_what_is_no_template_is_refused(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        settle_templates(files, {}, no_warning)


@pytest.fixture
def copied(test_data: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy(model: str) -> Path:
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        for file in (test_data / "models" / model).iterdir():
            if file.suffix in (".json", ".safetensors", ".model") and not file.name.startswith("golden"):
                (folder / file.name).write_bytes(file.read_bytes())
        return folder

    return copy


def edit(path: Path, encoding: str = "utf-8", **changes: Any) -> None:
    content = {**json.loads(path.read_text("utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}), encoding)


def test_the_chat_of_a_bundle_whose_checkpoint_has_marks(copied: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copied("qwen2-stories-0.9m")
    plain = files_of(folder)
    for file in folder.glob("*.json"):
        edit(file, "utf-8-sig")
    edit_marked = json.loads((folder / CONFIG).read_text("utf-8-sig")) | {"chat_template": "stale"}
    (folder / CONFIG).write_text(json.dumps(edit_marked), "utf-8-sig")
    (folder / JINJA).write_text("{{ messages[0]['content'] }}!", "utf-8-sig")
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    bundle.verify()
    texts = [name for name in bundle.manifest.files if name.endswith((".json", ".jinja"))]
    assert {CONFIG, JINJA, "tokenizer.json", "special_tokens_map.json"} <= {*texts}
    assert not any(bundle.file(name).read_bytes().startswith(b"\xef\xbb\xbf") for name in texts)
    made, original = (
        load({"tokenizer.json": bundle.file("tokenizer.json").read_bytes()}, tmp_path),
        load(plain, tmp_path),
    )
    assert made.encode("Once upon a time") == original.encode("Once upon a time")
    hello = Conversation([{"role": "user", "content": "Hello"}])
    assert ChatTemplate.from_bundle(bundle).render(hello) == "Hello!"


def test_the_chat_of_a_bundle_whose_checkpoint_has_a_processors_template(
    copied: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copied("qwen2-stories-0.9m")
    (folder / OF_PROCESSOR).write_bytes(as_json({"chat_template": CHATML}))
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    assert bundle.file(JINJA).read_text("utf-8") == CHATML
    assert OF_PROCESSOR not in bundle.manifest.files
    rendered = ChatTemplate.from_bundle(bundle).render(Conversation([{"role": "user", "content": "Hello"}]))
    assert rendered == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def chatml_of_llama(folder: Path, **config: Any) -> None:
    """A fine-tune of Llama with the turns of ChatML in ``added_tokens.json``."""
    (folder / "tokenizer.json").unlink()
    edit(folder / CONFIG, added_tokens_decoder=..., chat_template=CHATML, **config)
    (folder / "added_tokens.json").write_bytes(as_json({"<|im_start|>": 512, "<|im_end|>": 513}))


def test_added_tokens_of_a_sentencepiece_model_are_found_after_text(copied: Callable[[str], Path]) -> None:
    folder = copied("stories260K")
    chatml_of_llama(folder)
    made = load(files_of(folder), folder)
    assert made.encode("<|im_start|>hi<|im_end|>") == [1, 512, 415, 417, 513]
    assert made.encode("hi<|im_end|>")[-1] == 513


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_a_template_has_its_added_tokens_found_where_no_file_calls_them_special(
    copied: Callable[[str], Path], model_type: str
) -> None:
    folder, heard = copied("stories260K"), Listener()
    edit(folder / "config.json", model_type=model_type)
    chatml_of_llama(folder, add_prefix_space=...)
    made = load(files_of(folder, heard.warn), folder)
    assert made.encode("<|im_start|>hi<|im_end|>") == [1, 512, 270, 417, 513]
    assert made.encode("hi<|im_end|><|im_start|>") == [1, 270, 417, 513, 512]
    (warning,) = heard.warnings
    assert "<|im_start|>, <|im_end|> of added_tokens.json" in warning
    assert "name it in additional_special_tokens of special_tokens_map.json" in warning


def test_a_role_of_the_older_files_has_its_name_in_the_chat(copied: Callable[[str], Path], tmp_path: Path) -> None:
    """Where the config describes no added tokens, transformers takes the map's names."""
    folder = copied("qwen2-stories-0.9m")
    edit(folder / CONFIG, added_tokens_decoder=..., chat_template="{{ messages[0]['content'] + eos_token }}")
    edit(folder / "special_tokens_map.json", eos_token="<|im_end|>")
    files = files_of(folder)
    assert json.loads(files[CONFIG])["eos_token"] == "<|im_end|>"
    assert load(files, tmp_path).encode("Once<|im_end|>")[-1] == 1024
