"""Folded weights against the unfolded formula: same embedding, residuals and logits."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import decoder_norms, decoder_tensors
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.flat_model import Model, ModelLayer

Array = NDArray[np.float64]

MODEL = Model(
    layers=(ModelLayer(0.25),) * 2,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=24,
    vocab_size=20,
    max_positions=16,
    norm=Norm("layer", 1e-5, bias=True),
    activation="relu",
    tied_head=True,
    qk_norm=QKNorm(Norm("rms", 1e-6), over="head"),
)
PLAIN = MODEL.config()

MULTIPLIERS = {
    "none": {},
    "embedding": {"embedding_multiplier": 5.65},
    "residual": {"residual_multiplier": 0.22},
    "logits": {"logit_multiplier": 0.0625},
    "all": {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logit_multiplier": 0.125},
}
NORMS = {
    "with bias": Norm("layer", 1e-5, bias=True),
    "without weights": Norm("layer", 1e-5, weight=False),
    "less one": Norm("rms", 1e-6, offset=1.0),
}


def random_tensors(config: DecoderConfig) -> dict[str, LazyTensor]:
    rng = np.random.default_rng(0)
    required, optional = decoder_tensors(config)
    return {
        name: LazyTensor.from_array(rng.standard_normal(shape).astype(np.float32))
        for name, shape in (required | optional).items()
    }


def value(tensors: dict[str, LazyTensor], name: str, otherwise: float = 0) -> Array:
    return tensors[name].read().astype(np.float64) if name in tensors else np.array(otherwise, np.float64)


def normalized(norm: Norm, x: Array, weight: Array, bias: Array) -> Array:
    if norm.kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + norm.eps) * weight + bias


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def tied(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
@pytest.mark.parametrize("multipliers", MULTIPLIERS.values(), ids=MULTIPLIERS.keys())
def test_a_folded_model_computes_the_formula(tied: bool, norm: Norm, multipliers: dict[str, float]) -> None:
    config = replace(MODEL, tied_head=tied, norm=norm, **multipliers).config()
    before = random_tensors(config)
    after = folded(config, before)

    def same(found: Array, expected: Array) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    # Embedding.
    embedding = value(before, "embed.weight")
    same(value(after, "embed.weight"), config.embedding_multiplier * embedding)
    # What the sublayers add.
    for module in ("layers.0.attn.o", "layers.1.attn.o", "layers.0.mlp.down", "layers.1.mlp.down"):
        for part in ("weight", "bias"):
            same(value(after, f"{module}.{part}"), config.residual_multiplier * value(before, f"{module}.{part}"))
    # Norms; the last one together with the head.
    for name, (kind, _) in decoder_norms(config).items():
        if name != "final_norm":
            same(value(after, f"{name}.weight"), value(before, f"{name}.weight", 1) + kind.offset)
    x = np.random.default_rng(1).standard_normal((5, config.hidden_size))
    hidden = normalized(norm, x, value(before, "final_norm.weight", 1) + norm.offset, value(before, "final_norm.bias"))
    head = "embed.weight" if tied else "head.weight"
    expected = config.logit_multiplier * (hidden @ value(before, head).T + value(before, "head.bias"))
    hidden = normalized(norm, x, value(after, "final_norm.weight"), value(after, "final_norm.bias"))
    same(hidden @ value(after, head).T + value(after, "head.bias"), expected)
    # The rest is as it was.
    touched = {"embed.weight", "head.bias", "final_norm.weight", "final_norm.bias"}
    for name, tensor in before.items():
        if not (
            {name} & touched
            or ".o." in name
            or ".down." in name
            or name.removesuffix(".weight") in decoder_norms(config)
        ):
            assert after[name] is tensor


def test_every_norm_then_has_a_weight_in_its_shape() -> None:
    kinds = replace(MODEL, norm=NORMS["without weights"])
    for over in ("head", "each_head", "all"):
        config = replace(kinds, qk_norm=QKNorm(Norm("layer", 1e-5, weight=False), over=over)).config()
        tensors = folded(config, random_tensors(config))
        for name, (_, shape) in decoder_norms(config).items():
            assert tensors[f"{name}.weight"].shape == shape
            np.testing.assert_array_equal(tensors[f"{name}.weight"].read(), np.ones(shape, np.float32))


def test_folding_nothing_returns_the_tensors_themselves() -> None:
    before = random_tensors(PLAIN)
    after = folded(PLAIN, before)
    assert after.keys() == before.keys()
    assert all(after[name] is tensor for name, tensor in before.items())


def test_folding_does_not_change_its_input() -> None:
    config = replace(MODEL, **MULTIPLIERS["all"]).config()
    before = random_tensors(config)
    copies = {name: tensor.read().copy() for name, tensor in before.items()}
    folded(config, before)
    for name, tensor in before.items():
        np.testing.assert_array_equal(tensor.read(), copies[name])
