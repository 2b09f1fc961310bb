"""Configs of real checkpoints, without torch or weights: every key is understood, graphs of their real shapes load."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from edgegen.model.ort_session import open_session
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.rope import DynamicNtk, Linear, Llama3, LongRope, Proportional, Rope, Yarn
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.families import FAMILIES
from edgegen_export.graph.decoder import build_decode, build_prefill, kv_spec
from edgegen_export.graph.parameters import FedParameters
from edgegen_export.tensors.lazy import LazyTensor
from tests.families.real_configs import FOLDER, REAL_CONFIGS, RealConfig, Rotation

SCALINGS: dict[type | None, str | None] = {
    type(None): None,
    Linear: "linear",
    DynamicNtk: "dynamic",
    Yarn: "yarn",
    Llama3: "llama3",
    LongRope: "longrope",
    Proportional: "proportional",
}


@pytest.fixture(scope="module", params=REAL_CONFIGS, ids=str)
def real(request: pytest.FixtureRequest) -> RealConfig:
    return request.param


def config_of(raw: Mapping[str, Any]) -> DecoderConfig:
    config = find_architecture(raw, FAMILIES).read_config(raw)
    return config.for_context(config.max_positions)


def positions_of(config: DecoderConfig) -> str | tuple[Rotation, ...]:
    """How positions enter, rotations in the order of the first layers that have them."""
    if config.first(LearnedPositions):
        return "learned"
    if any(own.alibi for own in config.attentions.values()):
        return "alibi"
    by_rope: dict[Rope, list[int]] = {}
    for i, own in config.attentions.items():
        if own.rope:
            by_rope.setdefault(own.rope, []).append(i)
    everywhere = list(range(config.num_layers))
    return tuple(
        Rotation(rope.theta, rope.dim, SCALINGS[type(rope.scaling)], None if at == everywhere else tuple(at))
        for rope, at in by_rope.items()
    )


def test_every_file_has_its_line() -> None:
    assert {path.stem.replace("--", "/") for path in FOLDER.glob("*.json")} == {str(real) for real in REAL_CONFIGS}


def test_a_config_means_what_it_should(real: RealConfig) -> None:
    config = config_of(real.read())
    own = config.attention
    found = (config.num_layers, config.hidden_size, own.heads, own.kv_heads, own.head_dim)
    assert found == (real.layers, real.hidden, real.heads, real.kv_heads, real.head_dim)
    assert (config.max_positions, config.tied_head) == (real.context, real.tied)
    assert tuple(layer.attention and layer.attention.window for layer in config.layers) == (
        real.windows or (None,) * real.layers
    )
    assert positions_of(config) == real.positions


@pytest.mark.parametrize(
    ("checkpoint", "key", "value"),
    [
        ("HuggingFaceTB/SmolLM2-135M", "rope_interleaved", True),
        ("Qwen/Qwen2.5-0.5B", "use_mrope", True),
        ("microsoft/Phi-4-mini-instruct", "full_attn_mod", 2),
        ("microsoft/Phi-4-mini-instruct", "interpolate_factor", 2),
        ("bigcode/starcoder2-3b", "scale_attn_weights", False),
        ("bigcode/starcoder2-3b", "norm_type", "rms_norm"),
        ("bigcode/starcoder2-3b", "mlp_type", "gated"),
        ("bigscience/bloom-560m", "hidden_size", 64),
        ("bigscience/bloom-560m", "n_head", 8),
        ("google/gemma-3-270m", "use_bidirectional_attention", True),
        ("tiiuae/falcon-7b", "apply_residual_connection_post_layernorm", True),
        ("meta-llama/Llama-2-7b-hf", "invented_by_a_trainer", 1),
    ],
)
def test_another_value_is_refused_by_its_key(checkpoint: str, key: str, value: object) -> None:
    (real,) = (real for real in REAL_CONFIGS if real.checkpoint == checkpoint)
    with pytest.raises(UnsupportedModelError, match=rf"{key} = {value!r}: "):
        config_of({**real.read(), key: value})


def test_a_config_asks_for_as_many_parameters_as_are_published(real: RealConfig) -> None:
    required, optional = decoder_tensors(config_of(real.read()))
    least = sum(int(np.prod(shape)) for shape in required.values())
    most = least + sum(int(np.prod(shape)) for shape in optional.values())
    assert least <= real.parameters <= most


def test_graphs_of_the_real_shapes_load(real: RealConfig) -> None:
    """Weights are graph inputs, so that none has to exist; shapes are checked when the graph is loaded."""
    config = config_of(real.read())
    nothing = np.zeros((), np.float32)
    required = {
        name: LazyTensor.from_array(np.broadcast_to(nothing, shape))
        for name, shape in decoder_tensors(config)[0].items()
    }
    params = FedParameters(folded(config, required))
    for build in (build_prefill, build_decode):
        session = open_session(build(config, params, kv_spec(config)).model().SerializeToString())
        (logits,) = (value for value in session.get_outputs() if value.name == "logits")
        assert logits.shape[-1] == config.vocab_size
