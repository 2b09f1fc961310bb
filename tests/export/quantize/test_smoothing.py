"""Smoothing: the function stays what it was in every kind of decoder, and outliers go where they were sent."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.families import FAMILIES
from edgegen_export.families.phi4flash import PHI4FLASH
from edgegen_export.families.rwkv7 import RWKV7
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.quantize.smoothing import Pair, head_pair, layer_pairs, smoothed
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.flat_model import Model, ModelLayer
from tests.export.graph.test_blocks import MODELS
from tests.families.cases import CASES
from tests.families.formulas import phi4flash, rwkv7

Array = NDArray[np.float32]
IDS = np.random.default_rng(0).integers(0, 40, (2, 12))


def decoders() -> Iterator[tuple[str, DecoderConfig]]:
    """One of each kind that the families' cases know."""
    seen = set[object]()
    for case in CASES:
        if case.refused:
            continue
        raw = {"model_type": case.family, **case.config}
        config = find_architecture(raw, FAMILIES).read_config(raw)
        if config.ternary:
            continue  # a factor of a channel has no place in a ternary matrix
        own = next(iter(config.attentions.values()), None)
        mlp = next((layer.mlp for layer in config.layers if layer.mlp), None)
        mixers = frozenset((type(layer.mixer), len(layer.mixer.products)) for layer in config.layers if layer.mixer)
        kind = (
            *(config.block, config.norm.kind, config.experts is None, mixers, config.tied_head, config.embedding_size),
            *((own.qk_norm, own.heads, own.kv_heads, own.clip, own.softcap, own.gate, own.sub_norm) if own else ()),
            *((mlp.gated, mlp.activation) if mlp else ()),
            *(config.final_norm, bool(config.sources)),
        )
        if kind not in seen:
            seen.add(kind)
            yield str(case), config


def random_tensors(config: DecoderConfig, biases: bool = True) -> dict[str, LazyTensor]:
    rng = np.random.default_rng(1)
    required, optional = decoder_tensors(config)

    def values(name: str, shape: tuple[int, ...]) -> Array:
        scale = shape[1] ** -0.5 if len(shape) == 2 and "norm" not in name else 0.3
        return np.asarray(rng.standard_normal(shape) * scale + ("norm" in name), np.float32)

    wanted = required | (optional if biases else {})
    return folded(config, {name: LazyTensor.from_array(values(name, shape)) for name, shape in wanted.items()})


def logits(tensors: Mapping[str, LazyTensor], config: DecoderConfig) -> Array:
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    hidden = reference.hidden([IDS])[0]
    return reference.logits(hidden.reshape(-1, hidden.shape[-1]))


MORE = (
    ("shared values", MODELS["shared keys and values"].config()),
    ("rwkv7", RWKV7.read_config(rwkv7.BASE)),
    ("phi4flash", PHI4FLASH.read_config(phi4flash.BASE)),
)


def all_pairs(config: DecoderConfig) -> list[Pair]:
    head = head_pair(config)
    return [pair for i in range(config.num_layers) for pair in layer_pairs(config, i)] + ([head] if head else [])


def with_and_without_biases() -> Iterator[Any]:
    """Parameters of tests: a decoder with all tensors that it may have, and one with only those that it must."""
    for name, config in (*decoders(), *MORE):
        for biases in (True, False) if decoder_tensors(config)[1] else (True,):
            yield pytest.param(config, biases, id=f"{name}-{biases}")


@pytest.mark.slow
@pytest.mark.parametrize(("config", "biases"), [*with_and_without_biases()])
def test_the_logits_stay(config: DecoderConfig, biases: bool) -> None:
    tensors = random_tensors(config, biases)
    before, rng = logits(tensors, config), np.random.default_rng(2)
    after = dict(tensors)
    for pair in all_pairs(config):
        columns = tensors[f"{pair.consumers[0]}.weight"].shape[1]
        largest = np.exp(rng.uniform(-3, 3, columns)).astype(np.float32)
        after |= smoothed(after, pair, largest, 0.5).tensors
    assert all(tensor.shape == tensors[name].shape for name, tensor in after.items())
    np.testing.assert_allclose(logits(after, config), before, rtol=0, atol=3e-4 * np.abs(before).max())


PLAIN = Model(
    layers=(ModelLayer(0.25),),
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=24,
    vocab_size=20,
    max_positions=16,
    norm=Norm("layer", 1e-5, bias=True),
    activation="silu",
    gated=True,
    tied_head=False,
).config()


def test_activations_and_weights_meet_halfway() -> None:
    """At α = ½ both become √(max|x| · max|w|), up to what all channels have in common."""
    tensors, rng = random_tensors(PLAIN), np.random.default_rng(3)
    for pair in all_pairs(PLAIN):
        columns = tensors[f"{pair.consumers[0]}.weight"].shape[1]
        largest = np.exp(rng.uniform(-3, 3, columns)).astype(np.float32)
        if pair.group > 1:  # channels that share a factor, alike
            largest = np.tile(largest.reshape(-1, pair.group, pair.width)[:, :1], (1, pair.group, 1)).ravel()
        done = smoothed(tensors, pair, largest, 0.5)
        x = largest / done.factors
        w = np.max([np.abs(done.tensors[f"{name}.weight"].read()).max(axis=0) for name in pair.consumers], axis=0)
        if pair.group == 1:
            np.testing.assert_allclose(x / w, np.full(columns, (x / w)[0]), rtol=1e-4)
        assert np.ptp(np.log(x)) < 0.75 * np.ptp(np.log(largest))


def test_channels_without_activation_or_weight_are_left_alone() -> None:
    tensors = random_tensors(PLAIN)
    weight = tensors["layers.0.mlp.down.weight"].read().copy()
    weight[:, 3] = 0
    tensors["layers.0.mlp.down.weight"] = LazyTensor.from_array(weight)
    largest = np.full(24, 50, np.float32)
    largest[7] = 0
    pair = Pair("layers.0.mlp.up", ("layers.0.mlp.down",))
    factors = smoothed(tensors, pair, largest, 0.5).factors
    assert factors[3] == factors[7] == 1
    assert np.isfinite(factors).all()
    assert (factors > 0).all()


def test_all_pairs_of_a_plain_decoder() -> None:
    found = {pair.producer: pair.consumers for pair in all_pairs(PLAIN)}
    assert found == {
        "layers.0.attn.v": ("layers.0.attn.o",),
        "layers.0.mlp.up": ("layers.0.mlp.down",),
        "layers.0.attn_norm": ("layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"),
        "layers.0.mlp_norm": ("layers.0.mlp.gate", "layers.0.mlp.up"),
        "final_norm": ("head",),
    }
