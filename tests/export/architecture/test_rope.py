"""RoPE frequencies from configs against transformers' own functions; malformed settings are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError, UsageError
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.families import FAMILIES
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.reading.rope import contexts, read_rope
from tests.export.bundles import Listener
from tests.export.checkpoint.layouts import write_llama
from tests.oracle import import_transformers
from tests.second_oracle import FIRST, judged

HEAD_DIM, POSITIONS = 64, 4096
FACTORS = [round(1 + k / 7, 3) for k in range(HEAD_DIM // 2)]
LONG = {"short_factor": FACTORS, "long_factor": [2 * x for x in FACTORS]}
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "null": {"rope_scaling": None},
    "another base": {"rope_theta": 1000000},
    "default": {"rope_scaling": {"rope_type": "default"}},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.5}},
    "linear, in its old spelling": {"rope_scaling": {"type": "linear", "factor": 4}},
    "linear, partly rotated": {"partial_rotary_factor": 0.25, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}},
    "dynamic, with a key that is not used": {
        "rope_scaling": {"type": "dynamic", "factor": 3.0, "original_max_position_embeddings": 77}
    },
    "yarn": {"rope_scaling": YARN},
    "yarn of an original length": {"rope_scaling": {**YARN, "original_max_position_embeddings": 1024}},
    "yarn with bounds": {"rope_scaling": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}},
    "yarn with equal bounds after rounding": {"rope_scaling": {**YARN, "beta_fast": 1.0001, "beta_slow": 1.0}},
    "yarn not truncated": {"rope_scaling": {**YARN, "truncate": False}},
    "yarn with its factor": {"rope_scaling": {**YARN, "attention_factor": 1.3}},
    "yarn with scales": {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.2}},
    "yarn with one scale": {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0}},
    "yarn by one": {"rope_scaling": {**YARN, "factor": 1}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "longrope": {"original_max_position_embeddings": 1024, "rope_scaling": {"rope_type": "longrope", **LONG}},
    "longrope with its factor": {
        "original_max_position_embeddings": 1024,
        "rope_scaling": {"rope_type": "longrope", **LONG, "attention_factor": 1.19},
    },
    "longrope without an original length": {"rope_scaling": {"rope_type": "longrope", **LONG, "factor": 4.0}},
    "longrope that is not longer": {
        "original_max_position_embeddings": POSITIONS,
        "rope_scaling": {"rope_type": "longrope", **LONG},
    },
}


def rope_of(settings: dict[str, Any], **how: Any) -> Rope:
    """``read_rope`` of a config whose keys must all be understood."""
    read = ConfigReader(settings, {"rope_theta": 10000.0})
    given: dict[str, Any] = {"partial": True, **how}
    rope = read_rope(read, HEAD_DIM, POSITIONS, **given)
    read.ignore("original_max_position_embeddings")
    read.finish()
    return rope


def refusal(settings: dict[str, Any], **how: Any) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        rope_of(settings, **how)
    return str(caught.value)


@pytest.mark.parametrize("length", [1, POSITIONS // 4, POSITIONS // 4 + 1, POSITIONS, POSITIONS + 1, 3 * POSITIONS])
@pytest.mark.parametrize("name", judged(SETTINGS, lambda _: FIRST))
def test_frequencies_are_those_of_transformers(name: str, length: int) -> None:
    transformers, settings = import_transformers(), SETTINGS[name]
    theirs = transformers.LlamaConfig(
        hidden_size=4 * HEAD_DIM, num_attention_heads=4, max_position_embeddings=POSITIONS, **settings
    )
    scaling: dict[str, Any] = theirs.rope_scaling or {}
    kind = scaling.get("rope_type", "default")
    frequencies, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
    rope = rope_of(settings)
    np.testing.assert_allclose(rope.inverse_frequencies(length), frequencies.numpy(), rtol=1e-6)
    assert rope.inverse_frequencies(length).dtype == np.float32
    assert rope.attention_factor == pytest.approx(factor, rel=1e-12)


# rope_parameters, as newer writers spell it.


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_rope_parameters_say_the_same(settings: dict[str, Any]) -> None:
    expected = rope_of(settings)
    scaling = settings.get("rope_scaling") or {"rope_type": "default"}
    inside = {"rope_theta": settings.get("rope_theta", 10000.0), **scaling}
    if "partial_rotary_factor" in settings:
        inside["partial_rotary_factor"] = settings["partial_rotary_factor"]
    outside = {key: settings[key] for key in ("original_max_position_embeddings",) if key in settings}
    assert rope_of({**outside, "rope_parameters": inside}) == expected
    assert rope_of({**outside, "rope_parameters": inside | outside}) == expected
    assert rope_of({**settings, "rope_scaling": None, "rope_parameters": inside}) == expected
    assert rope_of({**outside, "rope_parameters": {"full_attention": inside}}) == expected


def test_each_type_of_layers_has_its_own_rotation() -> None:
    full, local = {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}, {"rope_theta": 5e3}
    config = {
        "model_type": "gemma3_text",
        "sliding_window": 512,
        "max_position_embeddings": 32768,
        "rope_parameters": {"full_attention": full, "sliding_attention": {**local, "rope_type": "default"}},
    }
    (gemma3,) = (family for family in FAMILIES if "gemma3_text" in family.model_types)
    config = gemma3.read_config(config)
    assert [config.attentions[i].window for i in range(6)] == [512] * 5 + [None]
    assert [rope and rope.theta for rope in (config.attentions[i].rope for i in range(6))] == [5e3] * 5 + [1e6]
    old = {"rope_theta": 1e6, "rope_local_base_freq": 5e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    before = {"sliding_window": 512, "max_position_embeddings": 32768, **old}
    assert gemma3.read_config(before) == config


def test_a_type_of_layers_that_the_family_does_not_have_is_refused() -> None:
    both = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    assert "rope_parameters.sliding_attention = {" in refusal({"rope_parameters": both})


def test_a_scaling_of_all_layers_is_not_that_of_windows() -> None:
    settings = {"local": 77.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    read = ConfigReader(settings)
    assert read_rope(read, 64, 64, theta_key="local", layer_type="sliding_attention") == Rope(77.0, 64)


# What is malformed.


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rope_theta": "big"}, "rope_theta: a number expected, found 'big'"),
        ({"rope_theta": None}, "rope_theta: missing"),
        ({"rope_theta": 1}, "rope_theta: must be greater than 1, found 1"),
        ({"rope_theta": -1e4}, "rope_theta: must be greater than 1"),
        ({"rope_theta": float("nan")}, "rope_theta: a number expected, found nan"),
        ({"rope_theta": 10**400}, "rope_theta: a number expected"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor = 1.5: it rotates 96 of 64 values"),
        ({"partial_rotary_factor": 0.05}, "it rotates 3 of 64"),
        ({"partial_rotary_factor": -0.5}, "it rotates -32 of 64"),
        ({"rope_scaling": 2.0}, "rope_scaling: an object expected, found 2.0"),
        ({"rope_scaling": {"rope_type": "lin"}}, "rope_scaling.rope_type = 'lin': this scaling is not supported"),
        ({"rope_scaling": {"type": "yarm"}}, "is not supported (did you mean 'yarn'?)"),
        ({"rope_scaling": {"type": "mrope"}}, "'mrope': this scaling is not supported"),
        ({"rope_scaling": {"rope_type": 3}}, "rope_scaling.rope_type: a text expected, found 3"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor: missing"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 0.5}},
            "rope_scaling.factor: must be at least 1, found 0.5",
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("inf")}}, "rope_scaling.factor: a number expected"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "facter": 4.0}},
            "rope_scaling.facter = 4.0: not understood, and it may change the result (did you mean 'factor'?)",
        ),
        (
            {"partial_rotary_factor": 1 / 32, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "a rotation of 2 values",
        ),
        (
            {"rope_scaling": {**YARN, "beta_fast": 1.0, "beta_slow": 2.0}},
            "beta_fast = 1: must be greater than beta_slow",
        ),
        ({"rope_scaling": {**YARN, "beta_fast": -3.0}}, "rope_scaling.beta_fast: must be positive, found -3"),
        ({"rope_scaling": {**YARN, "attention_factor": 0.0}}, "rope_scaling.attention_factor: must be positive"),
        ({"rope_scaling": {**YARN, "truncate": 1}}, "rope_scaling.truncate: true or false expected, found 1"),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": 0}}, "must be positive, found 0"),
        ({"rope_scaling": {**YARN, "low_freq_factor": 1.0}}, "rope_scaling.low_freq_factor = 1.0: not understood"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "two positive numbers expected, the second greater"),
        (
            {"rope_scaling": {"rope_type": "longrope", **LONG, "long_factor": FACTORS[1:]}},
            "rope_scaling.long_factor: a list of 32 positive numbers expected, found 31",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", **LONG, "short_factor": [0, *FACTORS[1:]]}},
            "rope_scaling.short_factor: a list of 32 positive numbers expected",
        ),
        (
            {"original_max_position_embeddings": 2 * POSITIONS, "rope_scaling": {"rope_type": "longrope", **LONG}},
            "original_max_position_embeddings = 8192: must be from 2 to max_position_embeddings = 4096",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
            "rope_scaling: stands beside rope_parameters",
        ),
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}},
            "rope_theta = 10000.0: contradicts the value 1000000.0 of its other name, rope_parameters.rope_theta",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    message = refusal(settings)
    assert reason in message
    assert "problems" not in message


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("llama3", ["factor", "original_max_position_embeddings"]),
        ("longrope", ["short_factor", "long_factor"]),
    ],
)
def test_all_that_a_scaling_lacks_is_listed(kind: str, missing: list[str]) -> None:
    message = refusal({"rope_scaling": {"rope_type": kind}})
    for key in missing:
        assert f"rope_scaling.{key}: missing" in message


# Contexts.


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (4096, 4096)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, (4096, 4096)),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.5}}, (4096, 10240)),
        ({"rope_scaling": YARN}, (4096, 16384)),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": 512}}, (4096, 4096)),
        ({"rope_scaling": LLAMA3}, (4096, 4096)),
        ({"original_max_position_embeddings": 256, "rope_scaling": {"type": "longrope", **LONG}}, (256, 4096)),
        ({"rope_scaling": {"type": "longrope", **LONG}}, (4096, 4096)),
    ],
)
def test_how_far_a_rotation_reaches(settings: dict[str, Any], expected: tuple[int, int]) -> None:
    assert contexts(rope_of(settings), POSITIONS) == expected


def test_no_rotation_reaches_as_far_as_the_model() -> None:
    assert contexts(None, 77) == (77, 77)


@pytest.fixture
def longrope(tmp_path: Path) -> Path:
    factors = [1.0 + k for k in range(8)]
    scaling = {"rope_type": "longrope", "short_factor": factors, "long_factor": [3 * x for x in factors]}
    return write_llama(
        tmp_path / "checkpoint",
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        rope_scaling=scaling,
    )


def test_a_model_is_exported_with_the_frequencies_of_its_context(longrope: Path, tmp_path: Path) -> None:
    plain = 10000.0 ** (-np.arange(8) / 8)
    heard = Listener()
    short, _ = export(str(longrope), tmp_path / "short", ExportOptions(scheme="fp32"), progress=heard)
    same, _ = export(str(longrope), tmp_path / "same", ExportOptions(scheme="fp32", max_context=16))
    long, _ = export(str(longrope), tmp_path / "long", ExportOptions(scheme="fp32", max_context=17))
    assert [b.manifest.model.max_context for b in (short, same, long)] == [16, 16, 17]
    assert any("exported for 16 positions; --max-context takes up to 64" in text for text in heard.warnings)
    for bundle, times in ((short, 1), (same, 1), (long, 3)):
        (table,) = bundle.variant.rotary
        np.testing.assert_allclose(table.inverse_frequencies, plain / (times * (1 + np.arange(8))), rtol=1e-6)
        assert table.scale == pytest.approx((1 + np.log(4) / np.log(16)) ** 0.5)


@pytest.mark.parametrize("wanted", [0, -1, 65, 1 << 40])
def test_a_context_that_the_model_does_not_have_is_refused(longrope: Path, tmp_path: Path, wanted: int) -> None:
    with pytest.raises(UsageError, match=f"max_context: .* 1 to 64 positions, not {wanted}"):
        export(str(longrope), tmp_path / "bundle", ExportOptions(max_context=wanted))
    assert not (tmp_path / "bundle").exists()
