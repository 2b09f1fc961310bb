"""GGUF files of the language models inside models with vision: text is continued as by the whole model."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import safetensors.numpy
from gguf import GGUFWriter

from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.gguf_case import Case
from tests.export.checkpoint.gguf_models import write_gguf
from tests.export.checkpoint.gguf_steps import Arrays, key_length, kv_heads, pictures, rope, sizes
from tests.families.test_wrapped import GLM4V, MROPE, TEXT, Wrapped
from tests.second_oracle import SECOND, open_oracle

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library that writes the files


class Inside:
    """The language model of a checkpoint, as the writer of GGUF files wants a model."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        theta = settings["rope_parameters"]["rope_theta"]
        said = {"tie_word_embeddings": False, "rms_norm_eps": 1e-6, "rope_theta": theta}
        self.config = SimpleNamespace(**{**said, **TEXT, **settings})
        tensors: Arrays = cast(Any, safetensors.numpy).load_file(folder / "model.safetensors")
        self.arrays = {
            name.replace("model.language_model.", "model."): array
            for name, array in tensors.items()
            if name.startswith(("model.", "lm_head.")) and "visual" not in name
        }

    def state_dict(self) -> dict[str, Any]:
        return {name: SimpleNamespace(numpy=lambda array=array: array) for name, array in self.arrays.items()}


def _in_halves(config: Any, arrays: Arrays) -> Arrays:
    """Neighbours that rotate together go to the halves of what rotates, 8 of 16 rows."""
    order = [*range(0, 8, 2), *range(1, 8, 2), *range(8, 16)]
    rows = {
        name: np.concatenate([array[head : head + 16][order] for head in range(0, len(array), 16)])
        for name, array in arrays.items()
        if ".q_proj." in name or ".k_proj." in name
    }
    return {**arrays, **rows}


def _glm4v(writer: GGUFWriter, config: Any) -> None:
    writer.add_rope_dimension_count(8)
    writer.add_rope_dimension_sections([1, 1, 2, 0])


@pytest.mark.parametrize("drafts", [False, True])
def test_text_is_continued_as_by_a_glm_with_vision(drafts: bool, tmp_path: Path) -> None:
    """A GLM-4.1V; with a layer that proposes further tokens, as a GLM-OCR has one, which is left."""

    def last_proposes(writer: GGUFWriter, config: Any) -> None:
        if drafts:
            writer.add_block_count(config.num_hidden_layers + 1)
            writer.add_nextn_predict_layers(1)

    def a_draft(config: Any, arrays: Arrays) -> Arrays:
        draft = {"blk.2.nextn.eh_proj.weight": np.ones((64, 128), np.float32)} if drafts else {}
        return {**arrays, **draft}

    text = {**GLM4V, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    folder = Wrapped("glm4v", text).write(tmp_path / "checkpoint")
    describe = (sizes, kv_heads, rope, key_length, _glm4v, last_proposes)
    case = Case("glm4", "", "", {}, describe, (_in_halves, a_draft))
    _assert_continued_alike(folder, write_gguf(tmp_path / "model.gguf", case, Inside(folder, text)))


@pytest.mark.parametrize(
    ("model_type", "arch", "settings"),
    [
        ("qwen2_vl", "qwen2vl", {"rms_norm_eps": 1e-5}),
        ("qwen2_5_vl", "qwen2vl", {"rms_norm_eps": 1e-5}),
        ("qwen3_vl", "qwen3vl", {}),
        ("paddleocr_vl", "paddleocr", {"rms_norm_eps": 1e-5}),
    ],
)
def test_text_is_continued_as_by_the_whole_model(
    model_type: str, arch: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    text = {**MROPE, **settings, "tie_word_embeddings": False}
    folder = Wrapped(model_type, text).write(tmp_path / "checkpoint")
    case = Case(arch, "", "", {}, (sizes, kv_heads, rope, key_length, pictures))
    file = write_gguf(tmp_path / "model.gguf", case, Inside(folder, text))
    _assert_continued_alike(folder, file)


def _assert_continued_alike(folder: Path, file: Path) -> None:
    ids = np.random.default_rng(0).integers(2, TEXT["vocab_size"], (1, 40))
    expected = open_oracle(folder, SECOND).logits(ids)[0]
    runner = runner_of(export_to(file, file.with_suffix("")))
    found = decoded(runner, runner.new_cache(), ids[0].tolist())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
