"""The checkpoints of the comparison: edgegen, transformers and the NumPy model compute the same logits."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from bench.compare.checkpoints import Shape, Sizes, write_checkpoint
from bench.compare.numpy_model import NumpyModel
from bench.compare.routed_shapes import Experts, GlmLiteShape, LingShape
from bench.compare.shapes import SHAPES, AnyShape, Lfm2Shape, LlamaShape, MambaShape, Qwen35Shape, read_shape
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.oracle import import_torch, import_transformers
from tests.second_oracle import SECOND, open_oracle

TINY = LlamaShape(layers=2, width=64, heads=4, kv_heads=2, inner=96, vocab=300, context=128)
SMALL: dict[str, AnyShape] = {
    "gpt2": Shape(layers=2, width=64, heads=4, vocab=300, context=128),
    "llama": TINY,
    "qwen2": replace(TINY, model_type="qwen2", rope_theta=1e6, eps=1e-6),
    "lfm2": Lfm2Shape(3, 64, 4, 2, 96, attending=(1,), vocab=300, context=128),
    "qwen3_5": Qwen35Shape(4, 64, 4, 2, 96, 32, 4, 16, vocab=300, context=128),
    "glm4_moe_lite": GlmLiteShape(
        3, 64, 3, 96, Experts(8, 3, 32, 1.8, 1, 1), 24, 32, 12, 8, 16, vocab=300, context=128
    ),
    "bailing_moe": LingShape(3, 64, 6, 2, 16, 96, Experts(12, 3, 32, 2.5, 4, 2), vocab=300, context=128),
    "mamba": MambaShape(3, 64, 128, 16, 4, vocab=300, context=128),
}
OF_SECOND = ("qwen3_5_text", "glm4_moe_lite", "sarvam_moe")
"""Model types that transformers 5 knows alone."""
IDS = np.random.default_rng(0).integers(0, 299, 40)


@pytest.fixture(params=SMALL)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint", SMALL[request.param])
    return tmp_path / "checkpoint"


def test_the_shape_of_a_checkpoint_is_known_again(checkpoint: Path) -> None:
    assert read_shape(checkpoint) in SMALL.values()


def test_edgegen_computes_what_the_reference_computes(checkpoint: Path, tmp_path: Path) -> None:
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    runner = open_runner(bundle, EngineOptions(threads=1))
    actual = runner.prefill(runner.new_cache(), 0, IDS.tolist())
    np.testing.assert_allclose(actual, NumpyModel.of(checkpoint).logits(IDS), atol=2e-5)


def test_transformers_computes_what_the_reference_computes(checkpoint: Path) -> None:
    expected = NumpyModel.of(checkpoint).logits(IDS)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] == "bailing_moe":  # transformers knows its layers under another name
        config |= {"model_type": "sarvam_moe", "architectures": ["SarvamMoEForCausalLM"]}
        (checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if config["model_type"] in OF_SECOND:
        np.testing.assert_allclose(open_oracle(checkpoint, SECOND).logits(IDS[None])[0, -1], expected, atol=2e-5)
        return
    torch = import_torch()
    transformers = import_transformers()
    model, found = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    with torch.inference_mode():
        logits = model(torch.from_numpy(IDS)[None]).logits[0, -1].numpy()
    np.testing.assert_allclose(logits, expected, atol=2e-5)


@pytest.mark.parametrize("sizes", [named.sizes for named in SHAPES.values()], ids=SHAPES)
def test_a_decode_step_reads_every_matrix_once(sizes: Sizes) -> None:
    """But for tables, of which it reads a row (GPT-2's positions, embeddings beside a head), and experts not chosen."""
    matrices = {name: prod(dims) for name, dims in sizes.tensors() if len(dims) == 2 and name != "wpe.weight"}
    if "lm_head.weight" in matrices:
        del matrices[next(name for name in matrices if "embed" in name)]
    read = sum(size for name, size in matrices.items() if ".experts." not in name)
    if isinstance(sizes, (GlmLiteShape, LingShape)):
        of_experts = sum(size for name, size in matrices.items() if ".experts." in name)
        read += of_experts * sizes.experts.per_token // sizes.experts.count
    assert read == sizes.weights_per_token


def test_a_tokenizer_is_as_large_as_the_vocabulary(checkpoint: Path) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    assert sorted(tokenizer["model"]["vocab"].values()) == list(range(300))
