"""GGUF files of published models, as llama.cpp's converter writes them: matrices in bfloat16, a real vocabulary.

The ``gguf`` library knows the tensors' names and writes the file; ``tests/export/checkpoint`` has what a family's
metadata are and how its tensors are rearranged.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.quants import quantize

from tests.export.checkpoint.gguf_models import CASES
from tests.export.tokenizer.gguf_vocabulary import byte_level_metadata, sentencepiece_metadata
from tests.oracle import import_torch, import_transformers
from tests.published.models import PublishedModel
from tests.published.tokenizer_sources import sentencepiece_model


def write(model: PublishedModel, checkpoint: Path, path: Path) -> None:
    """Write the checkpoint's weights, tokenizer and chat template to one file."""
    assert model.gguf
    torch, transformers = import_torch(), import_transformers()
    case = CASES[model.gguf[0]]
    opened = transformers.AutoModelForCausalLM.from_pretrained(str(checkpoint), dtype=torch.float32)
    config = opened.config
    tied = config.tie_word_embeddings
    arrays = {k: v.numpy() for k, v in opened.state_dict().items() if not (tied and k == "lm_head.weight")}
    for step in case.rearrange:
        arrays = step(config, arrays)
    arch = {name: number for number, name in MODEL_ARCH_NAMES.items()}[case.named_like or case.arch]
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    writer = GGUFWriter(path, case.arch)
    for describe in case.describe:
        describe(writer, config)
    _write_tokenizer(writer, model, checkpoint)
    for name, array in arrays.items():
        kind = GGMLQuantizationType.BF16 if array.ndim >= 2 else None
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")) or name,
            np.ascontiguousarray(array) if kind is None else quantize(np.ascontiguousarray(array), kind),
            raw_dtype=kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(writer: GGUFWriter, model: PublishedModel, checkpoint: Path) -> None:
    assert model.gguf
    settings = json.loads((checkpoint / "tokenizer_config.json").read_bytes())
    content = json.loads((checkpoint / "tokenizer.json").read_bytes())
    size = json.loads((checkpoint / "config.json").read_bytes())["vocab_size"]
    ids = {token["content"]: token["id"] for token in content["added_tokens"]}
    said: dict[str, int] = {}
    for name, key in (("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token"), ("unknown", "unk_token")):
        text: Any = settings.get(key)
        spelled = str(cast("Mapping[str, Any]", text)["content"]) if isinstance(text, Mapping) else text
        if spelled in ids:
            said[name] = ids[spelled]
    if model.gguf[1] == "spm":
        added = {token["id"]: token for token in content["added_tokens"]}
        metadata = sentencepiece_metadata(sentencepiece_model(model.tokenizer), added, **said)
    else:
        metadata = byte_level_metadata(checkpoint / "tokenizer.json", model.gguf[1], size=size, **said)
    begins = _adds_begin(checkpoint)
    writer.add_add_bos_token(begins)
    for key, value in metadata.items():
        _add(writer, key, value)
    if isinstance(template := settings.get("chat_template"), str):
        writer.add_chat_template(template)


def _adds_begin(checkpoint: Path) -> bool:
    """Whether the library puts a token before every text."""
    import tokenizers

    library = cast(Any, tokenizers).Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    return len(library.encode("x").ids) > len(library.encode("x", add_special_tokens=False).ids)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, cast("list[Any]", value))
    else:
        writer.add_uint32(key, value)
