"""Graph blocks against their formulas: at once, in chunked prefill, and in batches of different lengths.

No family and no checkpoint: a config, random tensors, the graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphContract, KVSpec
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache
from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.attention import Alibi, QKNorm, QueryScale
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import Block, DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.rope import Rope
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.graph.decoder import build_decode, build_prefill, kv_spec, rotary_tables
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.quantize.recipe import ROUNDED, Scheme
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import TwoSessions
from tests.export.flat_model import Model, ModelLayer, Table
from tests.export.graph.decoder_formula import DecoderFormula
from tests.runtime.models import fake_variant

TOLERANCE = 2e-4
"""Largest allowed difference of any logit; they are of size 1 to 10."""

Arrays = dict[str, NDArray[np.float32]]
Tensors = Mapping[str, LazyTensor]

RMS, LAYER = Norm("rms", 1e-6), Norm("layer", 1e-5, bias=True)
ROPE = Rope(10000.0, 16)
PLAIN = Model(
    layers=(ModelLayer(0.25),) * 2,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=48,
    vocab_size=40,
    max_positions=64,
    norm=RMS,
    activation="silu",
    tied_head=False,
    gated=True,
)
OLD = replace(PLAIN, norm=LAYER, activation="gelu_tanh", gated=False, num_kv_heads=4, positions=LearnedPositions(64))


def layers(*windows: int | None, rope: Rope | None = ROPE, scale: float = 0.25) -> tuple[ModelLayer, ...]:
    return tuple(ModelLayer(scale, window, rope) for window in windows)


ROTATED = replace(PLAIN, layers=layers(None, None))
SLOPES = (0.5, 0.25, 0.0625, 0.3)
OF_FAMILIES = ("shared_before_mixer", "over_blocks", "over_blocks_apart")
BLOCKS: tuple[Block, ...] = tuple(block for block in get_args(Block) if block not in OF_FAMILIES)
"""All but those whose layers have more than attention and MLPs: families compare them with transformers."""

MODELS: dict[str, Model] = {
    "no positions": PLAIN,
    "learned positions": OLD,
    "rotated": ROTATED,
    "heads of 8": replace(PLAIN, head_dim=8, layers=layers(None, None, rope=Rope(10000.0, 8))),
    "adjacent pairs": replace(PLAIN, layers=layers(None, None, rope=Rope(10000.0, 16, interleaved=True))),
    "a quarter rotated": replace(PLAIN, layers=layers(None, None, rope=Rope(10000.0, 4))),
    "a quarter rotated in adjacent pairs": replace(PLAIN, layers=layers(None, None, rope=Rope(100.0, 4, True))),
    "half rotated by the operator": replace(PLAIN, head_dim=32, layers=layers(None, None)),
    "two ropes": replace(
        PLAIN, layers=(ModelLayer(0.25, 6, Rope(100.0, 16)), ModelLayer(0.25, None, ROPE), ModelLayer(0.25, 6))
    ),
    "windows": replace(PLAIN, layers=layers(5, None, 12)),
    "windows of one and two": replace(PLAIN, layers=layers(1, 2)),
    "windows without rotation": replace(OLD, layers=layers(5, None, rope=None)),
    "norm of each head": replace(ROTATED, qk_norm=QKNorm(RMS, "head")),
    "norm of each head by its own": replace(ROTATED, qk_norm=QKNorm(Norm("layer", 1e-5), "each_head")),
    "norm of each head by its own, rms": replace(ROTATED, qk_norm=QKNorm(RMS, "each_head")),
    "norm of each head by its own, with bias": replace(ROTATED, qk_norm=QKNorm(LAYER, "each_head")),
    "norm of all heads": replace(ROTATED, qk_norm=QKNorm(RMS, "all")),
    "norm of heads with bias": replace(ROTATED, qk_norm=QKNorm(LAYER, "head")),
    "norm of heads without rotation": replace(PLAIN, qk_norm=QKNorm(Norm("rms", 1e-6, offset=1.0), "head")),
    "windows, norm of heads, one shared head": replace(
        ROTATED, layers=layers(7, 7, None), qk_norm=QKNorm(RMS, "head"), num_kv_heads=1
    ),
    "alibi": replace(OLD, positions=Alibi(SLOPES)),
    "alibi in bfloat16": replace(OLD, positions=Alibi(SLOPES, scale=0.25, bfloat16=True)),
    "alibi and windows": replace(OLD, positions=Alibi(SLOPES), layers=layers(5, None, rope=None)),
    "alibi and shared heads": replace(OLD, positions=Alibi(SLOPES), num_kv_heads=2, embedding_norm=True),
    "norm of heads after rotation": replace(ROTATED, qk_norm=QKNorm(RMS, "head", after_rotation=True)),
    "queries scaled by position": replace(ROTATED, layers=layers(7, None), query_scale=QueryScale(0.4, 5)),
    "sinks": replace(ROTATED, layers=layers(7, None), sinks=True),
    "sinks without rotation": replace(PLAIN, sinks=True),
    "norms before output projections": replace(ROTATED, sub_norm=RMS, activation="relu2"),
    "norms before output projections, with bias": replace(OLD, sub_norm=LAYER),
    "relu squared": replace(ROTATED, activation="relu2"),
    "xielu": replace(ROTATED, activation="xielu"),
    "xielu without gate": replace(OLD, activation="xielu"),
    "capped scores": replace(ROTATED, layers=layers(None, 9, scale=3.0), attention_softcap=2.0),
    "capped logits": replace(ROTATED, logit_softcap=1.5),
    "clipped": replace(ROTATED, clip_qkv=0.4),
    "clipped and normalized": replace(ROTATED, clip_qkv=0.4, qk_norm=QKNorm(RMS, "head"), layers=layers(6, 6)),
    "norms less one": replace(ROTATED, norm=Norm("rms", 1e-6, offset=1.0)),
    "norms without weights": replace(ROTATED, norm=Norm("layer", 1e-5, weight=False)),
    "norms without bias": replace(OLD, norm=Norm("layer", 1e-5)),
    "multiplied": replace(ROTATED, embedding_multiplier=3.0, residual_multiplier=0.4, logit_multiplier=0.5),
    "multiplied after norms": replace(ROTATED, block="sandwich", residual_multiplier=0.4),
    "multiplied and tied": replace(ROTATED, tied_head=True, embedding_multiplier=3.0, logit_multiplier=0.5),
    "narrow embedding, no last norm": replace(
        OLD, embedding_size=24, block="norm_after_sum", final_norm=False, tied_head=True, activation="relu"
    ),
    "shared keys and values": replace(
        PLAIN,
        layers=(
            *layers(None, 7),
            ModelLayer(0.25, 7, ROPE, source=1, mlp_width=80),
            ModelLayer(0.5, None, ROPE, source=0),
            ModelLayer(0.25, 7, ROPE, source=1),
        ),
    ),
    "shared keys and values without rotation": replace(
        OLD, layers=(*layers(None, 7, rope=None), ModelLayer(0.25, 7, source=1))
    ),
    "shared keys, rotated before": replace(
        PLAIN, head_dim=8, layers=(*layers(7, rope=Rope(100.0, 8)), ModelLayer(0.5, 7, Rope(100.0, 8), source=0))
    ),
    "embeddings of layers": replace(ROTATED, block="sandwich", per_layer=Table(16, 44, 4.0, 0.2, 0.7)),
    "a table of fewer rows than tokens": replace(ROTATED, block="sandwich", per_layer=Table(16, 30, 4.0, 0.2, 0.7)),
    "sparse MLPs": replace(
        PLAIN,
        layers=(ModelLayer(0.25, cutoff=1.3, rope=ROPE), ModelLayer(0.25, cutoff=0.0, mlp_width=34), ModelLayer(0.25)),
    ),
    "learned residuals": replace(ROTATED, block="sandwich_with_laurel"),
    "several streams": replace(ROTATED, block="sandwich", altup=AltUp(3)),
    "several streams, the second active": replace(ROTATED, altup=AltUp(2, active=1, clip=0.3)),
    "several streams with embeddings of layers and shared keys": replace(
        PLAIN,
        block="sandwich_with_laurel",
        altup=AltUp(4, active=2),
        per_layer=Table(16, 30, 4.0, 0.2, 0.7),
        layers=(
            *layers(None, 7),
            ModelLayer(0.25, 7, ROPE, source=1),
            ModelLayer(0.5, None, ROPE, source=0, cutoff=0.5),
        ),
    ),
    "several streams, unscaled": replace(
        ROTATED,
        block="sandwich",
        altup=AltUp(3, scaled=False),
        per_layer=Table(16, 44, 4.0, 0.2, 0.7),
    ),
    "blocks of several kinds": replace(
        ROTATED,
        block="post_norm",
        residual_multiplier=0.4,
        layers=(ModelLayer(0.25, rope=ROPE, block="sequential"), *layers(7), ModelLayer(0.25, block="parallel")),
    ),
    "single with an MLP": replace(ROTATED, block="single", layers=(*layers(None), ModelLayer(1.0, mlp_only=True))),
    **{f"{block} with rms": replace(ROTATED, block=block) for block in BLOCKS},
    **{f"{block} with layer norm": replace(OLD, block=block) for block in BLOCKS},
}


def random_tensors(config: DecoderConfig, *, biases: bool) -> Arrays:
    """Weights of our names that keep the activations' size; no value is trivial."""
    rng = np.random.default_rng(0)
    required, optional = decoder_tensors(config)
    tensors: Arrays = {}
    for name, shape in (required | (optional if biases else {})).items():
        spread = 0.3 if "norm" in name or len(shape) <= 1 else 1.5 * shape[-1] ** -0.5
        mean = 1.0 if name.endswith("norm.weight") else 0.0
        tensors[name] = np.asarray(mean + spread * rng.standard_normal(shape), np.float32)
    return tensors


class Weights:
    """A weights file in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def begin(self, nbytes: int) -> int:
        self.data += bytes(-len(self.data) % 64)
        return len(self.data)

    def append(self, array: NDArray[np.generic]) -> None:
        self.data += array.tobytes()


def runner_of(
    config: DecoderConfig, tensors: Arrays, folder: Path, scheme: Scheme = "fp32", scales: Tensors | None = None
) -> InPlaceRunner:
    """The graphs of ``config``, ready to run; with ``scales``, over an int8 cache."""
    kv, weights = kv_spec(config), Weights()
    kv = replace(kv, dtype="int8") if scales else kv
    params = StoredParameters(
        {**folded_tensors(config, tensors), **(scales or {})}, ROUNDED[scheme], weights, lambda elements: None
    )
    return runner_over(config, params, weights, kv, folder)


def runner_over(
    config: DecoderConfig, params: StoredParameters, weights: Weights, kv: KVSpec, folder: Path
) -> InPlaceRunner:
    """The graphs over ``params``, which write to ``weights``."""
    contract = GraphContract()
    for name, build in (("prefill", build_prefill), ("decode", build_decode)):
        (folder / f"{name}.onnx").write_bytes(build(config, params, kv).model("weights.data").SerializeToString())
    (folder / "weights.data").write_bytes(weights.data)
    variant = replace(fake_variant(), kv=kv, contract=contract, rotary=tuple(rotary_tables(config).values()))
    graphs = TwoSessions(folder / "prefill.onnx", folder / "decode.onnx", threads=1)
    return InPlaceRunner(graphs, variant, config.vocab_size, config.max_positions)


def folded_tensors(config: DecoderConfig, tensors: Arrays) -> Tensors:
    return folded(config, {name: LazyTensor.from_array(x) for name, x in tensors.items()})


@dataclass(frozen=True)
class Subject:
    runner: InPlaceRunner
    formula: DecoderFormula

    def ids(self, count: int, seed: int = 0) -> list[int]:
        return np.random.default_rng(seed).integers(0, self.formula.model.vocab_size, count).tolist()

    def close(self, found: NDArray[Any], ids: list[int], positions: list[int]) -> None:
        expected = self.formula.logits(ids)[positions]
        assert np.abs(expected).max() > 0.5
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.fixture(scope="module", params=MODELS.values(), ids=list(MODELS))
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    model: Model = request.param
    config = model.config()
    tensors = random_tensors(config, biases=config.norm.kind == "layer")
    runner = runner_of(config, tensors, tmp_path_factory.mktemp("blocks"))
    return Subject(runner, DecoderFormula(model, tensors))


def poison(cache: KVCache) -> None:
    """Fill with NaN whatever lies beyond each slot's length."""
    for slot in range(cache.slots):
        for buffer in cache.buffers(slot, 1):
            buffer.array[0, :, cache.lengths[slot] :] = np.nan


def test_logits_are_those_of_the_formula(subject: Subject) -> None:
    ids, runner = subject.ids(40), subject.runner
    cache = runner.new_cache()
    cache.reserve(1, 64)
    poison(cache)
    subject.close(runner.decode(cache, np.array([ids]))[0], ids, list(range(40)))


@pytest.mark.parametrize("chunk", [1, 3, 7, 30])
def test_a_prompt_cut_in_chunks_gives_the_same_across_every_window(subject: Subject, chunk: int) -> None:
    ids, runner, cache = subject.ids(40), subject.runner, subject.runner.new_cache()
    found: list[NDArray[np.float32]] = []
    ends: list[int] = []
    for start in range(0, 30, chunk):
        cache.reserve(1, 64)
        poison(cache)
        found.append(runner.prefill(cache, 0, ids[start : min(start + chunk, 30)]).copy())
        ends.append(min(start + chunk, 30) - 1)
    for at in range(30, 34):
        poison(cache)
        found.append(runner.decode(cache, np.array([[ids[at]]]))[0, 0].copy())
        ends.append(at)
    poison(cache)
    found += list(
        runner.decode(cache, np.array([ids[34:40]]))[0].copy()
    )  # several tokens at once, as for verifying proposals
    subject.close(np.array(found), ids, ends + list(range(34, 40)))


LENGTHS = (3, 21, 9, 1)


def together_and_alone(runner: InPlaceRunner, rows: list[list[int]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits [steps, rows, vocab] of four steps after prompts of ``LENGTHS``: in a batch, and each row by itself."""
    cache = runner.new_cache()
    cache.reserve(len(rows), 64)
    for slot, length in enumerate(LENGTHS):
        runner.prefill(cache, slot, rows[slot][:length])
    together: list[NDArray[Any]] = []
    for step in range(4):
        poison(cache)
        ids = [[row[length + step]] for row, length in zip(rows, LENGTHS, strict=True)]
        together.append(runner.decode(cache, np.array(ids))[:, 0].copy())
    alone = np.empty_like(together)
    for slot, length in enumerate(LENGTHS):
        own = runner.new_cache()
        runner.prefill(own, 0, rows[slot][:length])
        for step in range(4):
            alone[step, slot] = runner.decode(own, np.array([[rows[slot][length + step]]]))[0, 0]
    return np.array(together), alone


def test_rows_of_different_lengths_do_not_see_each_other(subject: Subject) -> None:
    rows = [subject.ids(length + 4, seed) for seed, length in enumerate(LENGTHS)]
    together, alone = together_and_alone(subject.runner, rows)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    for slot, length in enumerate(LENGTHS):
        subject.close(together[:, slot], rows[slot], list(range(length, length + 4)))


@pytest.mark.parametrize(
    "name",
    [
        "rotated",
        "windows, norm of heads, one shared head",
        "alibi and windows",
        "clipped",
        "shared keys and values",
        "sparse MLPs",
        "several streams with embeddings of layers and shared keys",
    ],
)
def test_an_int8_row_has_the_bits_it_has_alone(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    config = model.config()
    tensors = random_tensors(config, biases=True)
    runner = runner_of(config, tensors, tmp_path, "int8")
    subject = Subject(runner, DecoderFormula(model, tensors))
    rows = [subject.ids(length + 4, seed) for seed, length in enumerate(LENGTHS)]
    np.testing.assert_array_equal(*together_and_alone(runner, rows))
