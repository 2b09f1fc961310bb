"""Makes a published model's checkpoint folder with transformers, and records what transformers does with it.

tests/published/made.py calls it in the tests' process, or the second oracle's.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tests.oracle import import_torch, import_transformers
from tests.published.hard_texts import hard_texts
from tests.published.models import MODELS, PublishedModel
from tests.published.tokenizer_sources import published_tokenizer

GOLDEN = "golden.json"
GREEDY = 16
_WRAPPED = "mistral3"
"""The type of a model that is written with its vision, which transformers has no text model for."""
PROMPT = "Hello, my name is"
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string", "description": "A town."}},
                "required": ["place"],
            },
        },
    }
]
CHATS: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "What is the capital of Finland?"}],
    [
        {"role": "user", "content": "What is the capital of Finland?"},
        {"role": "assistant", "content": "Helsinki."},
        {"role": "user", "content": "And of Estonia? Größe, 你好 😀"},
    ],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
)


def make(name: str, folder: Path) -> None:
    """Write the model's weights, tokenizer and goldens to ``folder``."""
    model = next(each for each in MODELS if each.name == name)
    write_tokenizer(model, folder)
    _write_weights(model, folder)
    golden = {**_golden(model, folder), "transformers": import_transformers().__version__}
    (folder / GOLDEN).write_text(json.dumps(golden), "utf-8")


def write_tokenizer(model: PublishedModel, folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and the configs."""
    tokenizer = published_tokenizer(model.tokenizer)
    content, settings = tokenizer.content, dict(tokenizer.settings)
    if model.renamed or model.more:
        changed = _with_more(_renamed(json.loads(content), model.renamed), model.more)
        content = json.dumps(changed, ensure_ascii=False).encode()
        settings.pop("added_tokens_decoder", None)
        for key, value in settings.items():
            if isinstance(value, str):
                settings[key] = model.renamed.get(value, value)
    settings |= model.settings
    if settings.get("tokenizer_class") == "GPT3_5Tokenizer":  # the package's own name, which transformers does not know
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if (template := model.read_template()) is not None:
        settings["chat_template"] = template
    (folder / "tokenizer.json").write_bytes(content)
    for file, value in (
        ("tokenizer_config.json", settings),
        ("config.json", model.read_config()),
        ("generation_config.json", dict(model.generation)),
    ):
        (folder / file).write_text(json.dumps(value, indent=1, ensure_ascii=False), "utf-8")


def _renamed(content: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Other texts for some added tokens, wherever they stand."""
    for token in content["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {names.get(text, text): token_id for text, token_id in vocabulary.items()}
    return content


def _with_more(content: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Control tokens after the vocabulary."""
    first = 1 + max(*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"]))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content["added_tokens"] += [{"id": first + n, "content": text, **flags} for n, text in enumerate(texts)]
    return content


def _config(transformers: Any, folder: Path) -> Any:
    """The config as transformers reads it; of MiniCPM, which it does not have, a Granite's of the same factors."""
    keys = json.loads((folder / "config.json").read_bytes())
    if keys["model_type"] != "minicpm":
        return transformers.AutoConfig.from_pretrained(str(folder))
    factors = {
        "embedding_multiplier": keys["scale_emb"],
        "residual_multiplier": keys["scale_depth"] / math.sqrt(keys["num_hidden_layers"]),
        "logits_scaling": keys["hidden_size"] / keys["dim_model_base"],
        "attention_multiplier": (keys["hidden_size"] // keys["num_attention_heads"]) ** -0.5,
    }
    return transformers.GraniteConfig(
        **{key: keys[key] for key in keys.keys() - {"model_type", "architectures"}} | factors
    )


def _write_weights(model: PublishedModel, folder: Path) -> None:
    torch, transformers = import_torch(), import_transformers()
    config = _config(transformers, folder)
    auto = transformers.AutoModelForCausalLM
    if config.model_type != _WRAPPED and "text_config" in model.read_config():
        config = config.get_text_config()
    if config.model_type == _WRAPPED:
        auto = transformers.AutoModelForImageTextToText
    made = auto.from_config(config, dtype=torch.bfloat16).eval()
    made.tie_weights()
    random = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in made.parameters():
            _fill(torch, parameter, random)
    size = sum(each.numel() for each in made.parameters()) * 2
    written = folder / "weights"
    made.save_pretrained(str(written), max_shard_size=size if model.shards == 1 else math.ceil(size / model.shards))
    for file in written.glob("model*.safetensors*"):
        file.rename(folder / file.name)
    shutil.rmtree(written)


def _fill(torch: Any, parameter: Any, random: np.random.Generator) -> None:
    """Greater than transformers' own, so that no two logits are nearly the same."""
    values = torch.from_numpy(random.standard_normal(tuple(parameter.shape), np.float32))
    if parameter.dim() >= 2:
        parameter.copy_(values * parameter.shape[-1] ** -0.5)
    else:
        parameter.copy_(1 + 0.1 * values)


def _golden(model: PublishedModel, folder: Path) -> dict[str, Any]:
    torch, transformers = import_torch(), import_transformers()
    import tokenizers

    library: Any = cast(Any, tokenizers).Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    prompt: list[int] = tokenizer(PROMPT)["input_ids"]  # whose settings say what is put before a text
    config, auto = _config(transformers, folder), transformers.AutoModelForCausalLM
    if config.model_type == _WRAPPED:
        auto = transformers.AutoModelForImageTextToText
    opened = auto.from_pretrained(str(folder), config=config, dtype=torch.float32, attn_implementation="eager")
    opened = opened.eval().float()
    return {
        "prompt": prompt,
        "greedy": _greedy(torch, opened, prompt),
        **spelled(library),
        "chats": list(_chats(model, tokenizer, library)),
        "template": bool(tokenizer.chat_template),
    }


def spelled(library: Any) -> dict[str, Any]:
    """The hard texts of a tokenizer, with its own added tokens in some, and the ids of each by the tokenizers library,
    without what a template adds."""
    library.no_padding()
    library.no_truncation()
    controls = [token.content for _, token in sorted(library.get_added_tokens_decoder().items())]
    texts = hard_texts(47, controls)
    encodings = library.encode_batch(texts, add_special_tokens=False)
    return {"texts": texts, "ids": [encoding.ids for encoding in encodings]}


def _greedy(torch: Any, model: Any, prompt: Sequence[int]) -> list[int]:
    ids, found = torch.tensor([list(prompt)]), list[int]()
    with torch.no_grad():
        for _ in range(GREEDY):
            found.append(int(model(ids, use_cache=False).logits[0, -1].argmax()))
            ids = torch.cat([ids, torch.tensor([[found[-1]]])], dim=1)
    return found


def _chats(model: PublishedModel, tokenizer: Any, library: Any) -> Iterator[dict[str, Any]]:
    """Every conversation, with and without tools, thinking on and off, as ``apply_chat_template`` renders it."""
    if not tokenizer.chat_template:
        return
    for messages in CHATS:
        for tools in (None, TOOLS):
            for variables in (dict[str, Any](), *(model.thinking or ())):
                chat: dict[str, Any] = {"messages": messages, "tools": tools, "variables": variables}
                try:
                    text = tokenizer.apply_chat_template(
                        messages, tools=tools, tokenize=False, add_generation_prompt=True, **variables
                    )
                except Exception as error:  # the template's own refusal
                    yield {**chat, "refused": str(error)}
                    continue
                yield {**chat, "text": text, "ids": library.encode(text, add_special_tokens=False).ids}
