"""The layouts are what the rest of the world reads as GPT-2."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.checkpoint.layouts import gpt2_tensors, llama_tensors, write_gpt2, write_llama

torch = pytest.importorskip("torch", reason="the layouts are checked against transformers, on torch")
transformers = pytest.importorskip("transformers", reason="the layouts are checked against transformers")


@pytest.mark.parametrize(("dtype", "shards"), [("float32", 1), ("bfloat16", 2)])
@pytest.mark.parametrize("layout", ["original", "trainer", "untied", "tied_with_head"])
def test_transformers_reads_every_layout(tmp_path: Path, layout: Any, dtype: str, shards: int) -> None:
    sizes: dict[str, Any] = {"n_embd": 8, "vocab_size": 11, "n_positions": 6}
    folder = write_gpt2(tmp_path, layout=layout, n_head=2, dtype=dtype, shards=shards, **sizes)
    model, info = transformers.GPT2LMHeadModel.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    for name, array in gpt2_tensors(**sizes).items():
        stored = torch.from_numpy(array).to(getattr(torch, dtype)).to(torch.float32).numpy()
        np.testing.assert_array_equal(model.transformer.get_parameter(name).detach().numpy(), stored)
    tied = model.lm_head.weight is model.transformer.wte.weight
    assert tied == (layout != "untied")
    if not tied:
        assert not torch.equal(model.lm_head.weight, model.transformer.wte.weight)
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()


@pytest.mark.parametrize(
    ("model_type", "kind"), [("llama", {}), ("qwen2", {"bias": True}), ("qwen3", {"qk_norm": True})]
)
@pytest.mark.parametrize("tied", [False, True])
def test_transformers_reads_llama_and_its_likenesses(
    tmp_path: Path, model_type: str, kind: dict[str, bool], tied: bool
) -> None:
    folder = write_llama(tmp_path, model_type=model_type, shards=2, tie_word_embeddings=tied)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, array in llama_tensors(tied=tied, **kind).items():
        np.testing.assert_array_equal(model.get_parameter(name).detach().numpy(), array)
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()
