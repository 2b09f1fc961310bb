"""The language model of a multimodal checkpoint: Gemma 3 with its vision tower."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.families import FAMILIES
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.oracle import edit_json, import_torch, import_transformers
from tests.systems import lend

pytestmark = pytest.mark.parity

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 96,
    "sliding_window": 12,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": 16,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    config = transformers.Gemma3Config(text_config=TEXT, vision_config=VISION)
    model = transformers.Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    folder = tmp_path_factory.mktemp("vision") / "checkpoint"
    model.save_pretrained(str(folder))
    return folder


def test_text_is_continued_as_by_the_whole_model(checkpoint: Path, tmp_path: Path) -> None:
    torch, transformers = import_torch(), import_transformers()
    ids = np.random.default_rng(0).integers(0, TEXT["vocab_size"], (1, 50))
    model = transformers.Gemma3ForConditionalGeneration.from_pretrained(str(checkpoint), attn_implementation="eager")
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(ids)).logits[0].numpy()
    bundle = export_to(checkpoint, tmp_path / "bundle")
    runner, tokens = runner_of(bundle), ids[0].tolist()
    assert np.abs(decoded(runner, runner.new_cache(), tokens) - expected).max() < 1e-3
    assert np.abs(prefilled(runner, runner.new_cache(), tokens, 7)[-1] - expected[-1]).max() < 1e-3
    assert bundle.manifest.model.family == "gemma3"


def test_a_fault_of_the_inner_config_is_named_by_its_place(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in checkpoint.iterdir():
        lend(file, folder / file.name)
    (folder / "config.json").unlink()
    (folder / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    edit_json(folder / "config.json", text_config={**TEXT, "head_dimension": 16, "hidden_size": "64"})
    with pytest.raises(UnsupportedModelError) as caught:
        export_to(folder, tmp_path / "bundle")
    assert "text_config.hidden_size: a whole number expected, found '64'" in str(caught.value)
    assert "text_config.head_dimension = 16: not understood" in str(caught.value)


def test_class_defaults_are_filled_in() -> None:
    (family,) = (family for family in FAMILIES if "gemma3" in family.model_types)
    full = import_transformers().Gemma3Config().to_dict()
    assert family.read_config({"model_type": "gemma3"}) == family.read_config(full)
    with pytest.raises(UnsupportedModelError, match="contradicts"):
        family.read_config({"model_type": "gemma3", "tie_word_embeddings": False})
