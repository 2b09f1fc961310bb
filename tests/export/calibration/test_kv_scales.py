"""Scales of int8 keys and values, and means of int4 keys: from those of transformers, at every position."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.model.interfaces import Runner
from edgegen.tokenizer import Tokenizer
from edgegen_export.architecture.binding import bind
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.rope import Rope
from edgegen_export.calibration import key_means
from edgegen_export.calibration.key_rotation import rotated_mean, rotated_reach
from edgegen_export.calibration.kv_scales import MARGIN, ROTATED_MARGIN, KVStatistics, kv_statistics, other_texts
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families import FAMILIES
from edgegen_export.graph.decoder import kv_spec, rotary_tables
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, runner_of
from tests.export.graph.test_blocks import MODELS, folded_tensors, random_tensors
from tests.oracle import Oracle, import_torch, write_random

pytestmark = pytest.mark.usefixtures("whole_parity")

CONTEXT = 96


@given(
    theta=st.sampled_from([3.0, 100.0, 10000.0, 1e6]),
    half=st.integers(1, 8),
    interleaved=st.booleans(),
    tokens=st.integers(1, 9),
    positions=st.sampled_from([9, 30, 1000]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=200)
def test_keys_reach_as_far_as_they_do_when_turned_to_every_position(
    theta: float, half: int, interleaved: bool, tokens: int, positions: int, seed: int
) -> None:
    rope = Rope(theta, 2 * half, interleaved)
    rng = np.random.default_rng(seed)
    unturned = rng.standard_normal((2, 3, tokens, half)) + 1j * rng.standard_normal((2, 3, tokens, half))
    turn = theta ** (-np.arange(half) / half)

    def channels(pairs: NDArray[np.complex128]) -> NDArray[np.float64]:
        parts = np.stack([pairs.real, pairs.imag], axis=-1 if interleaved else -2)
        return parts.reshape(*pairs.shape[:-1], 2 * half)

    found = channels(unturned * np.exp(1j * turn * np.arange(tokens)[:, None])).astype(np.float32)
    everywhere = channels(unturned[..., None, :] * np.exp(1j * turn * np.arange(positions)[:, None]))
    expected = np.abs(everywhere).max(axis=(0, 2, 3))
    reach = rotated_reach(found, rope, positions)
    # Between two positions a pair may come nearer to an axis than at either: that much more is promised.
    step = np.repeat(turn, 2) if interleaved else np.tile(turn, 2)
    between = np.where(step < np.pi, 1 / np.cos(np.minimum(step, 3) / 2), np.inf)
    largest = np.abs(unturned).max()
    assert (reach >= expected - 1e-5 * largest).all()
    assert (reach <= np.minimum(np.abs(expected * between), largest) + 1e-5 * largest).all()
    mean = everywhere.mean(axis=(0, 2, 3))
    np.testing.assert_allclose(rotated_mean(found, rope, positions), mean, atol=2e-5 * largest)


def statistics_of(folder: Path, family: str, ids: NDArray[np.int64]) -> KVStatistics:
    architecture = next(a for a in FAMILIES if family in a.model_types)
    checkpoint = Checkpoint.open(str(folder))
    config = architecture.read_config(checkpoint.config)
    tensors = folded(config, bind(architecture, config, checkpoint.tensors))
    return kv_statistics(tensors, config, kv_spec(config), ids)


def scales_of(folder: Path, family: str, ids: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    return {name: x.read() for name, x in statistics_of(folder, family, ids).scales.items()}


def kept_by_transformers(folder: Path, ids: NDArray[np.int64], first: int = 0) -> list[tuple[Any, Any]]:
    """Each layer's keys and values [b, kv_heads, t, head_dim] of ids at the positions from ``first`` on."""
    torch = import_torch()
    positions = torch.arange(first, first + ids.shape[1])[None].expand(len(ids), -1)
    with torch.no_grad():
        cache = Oracle(folder).model(torch.from_numpy(ids), position_ids=positions, use_cache=True).past_key_values
    return [(layer.keys.numpy(), layer.values.numpy()) for layer in cache.layers]


def largest(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.abs(x).max(axis=(0, 2))[None, :, None]


def has_room(scale: NDArray[np.float32], values: NDArray[np.float32]) -> bool:
    """Whether values have the room that they were promised, and not much more than that."""
    room = 127 * scale / (MARGIN * largest(values))
    return bool((room > 0.9999).all() and (room < 3).all())


def test_learned_positions_are_all_seen(tmp_path: Path) -> None:
    config = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT, "vocab_size": 96}
    folder = write_random(tmp_path / "gpt2", "gpt2", config)
    ids = np.random.default_rng(0).integers(0, 96, (3, 16))
    scales = scales_of(folder, "gpt2", ids)
    rows = [kept_by_transformers(folder, ids[row : row + 1], first) for row, first in enumerate((0, 40, 80))]
    for layer in range(2):
        for part, name in enumerate("kv"):
            text = np.concatenate([row[layer][part] for row in rows])
            found = scales[f"layers.{layer}.attn.{name}_scale"]
            assert found.shape == (1, 4, 1, 16)
            if name == "k":
                np.testing.assert_allclose(found, MARGIN * largest(text) / 127, rtol=1e-4)
            else:
                assert has_room(found, text)


ROTATED = {
    "llama": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96},
    "gptj": {"n_embd": 64, "n_head": 4, "rotary_dim": 8},
}
rotated_families = pytest.mark.parametrize("family", ROTATED)


def write_rotated(folder: Path, family: str) -> Path:
    """A random model of one layer, the keys of which depend on their own token and its position only."""
    layers, context = (
        ("num_hidden_layers", "max_position_embeddings") if family == "llama" else ("n_layer", "n_positions")
    )
    return write_random(folder, family, {**ROTATED[family], layers: 1, context: CONTEXT, "vocab_size": 96})


@rotated_families
def test_int8_keys_are_calibrated_for_positions_that_the_text_has_not(tmp_path: Path, family: str) -> None:
    shape, folder = ROTATED[family], write_rotated(tmp_path / family, family)
    ids = np.random.default_rng(0).integers(0, 96, (2, 16))
    scales = scales_of(folder, family, ids)
    here = kept_by_transformers(folder, ids)[0]
    everywhere = np.maximum.reduce([largest(kept_by_transformers(folder, ids, at)[0][0]) for at in range(CONTEXT - 16)])
    found = 127 * scales["layers.0.attn.k_scale"] / ROTATED_MARGIN
    rotated = slice(None, shape.get("rotary_dim"))
    assert (found[..., rotated] >= 0.999 * everywhere[..., rotated]).all()
    # A pair's length, at most; where it has turned far enough, that is reached.
    assert (found[..., rotated] <= 1.001 * np.abs(everywhere[..., rotated]).max()).all()
    assert (everywhere[..., rotated] > 1.2 * largest(here[0])[..., rotated]).any(), "the text would have been enough"
    if family == "gptj":
        still = 127 * scales["layers.0.attn.k_scale"][..., 8:] / MARGIN
        np.testing.assert_allclose(still, largest(here[0])[..., 8:], rtol=1e-4)
    assert has_room(scales["layers.0.attn.v_scale"], here[1])


@rotated_families
def test_means_of_int4_keys_are_those_of_all_positions(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_means, "WORTH", np.inf)  # random keys have little in common
    folder = write_rotated(tmp_path / family, family)
    ids = np.random.default_rng(0).integers(0, 96, (2, 16))
    (found,) = statistics_of(folder, family, ids).key_means.values()
    here = kept_by_transformers(folder, ids)[0][0].mean(axis=(0, 2))
    each_everywhere = np.repeat(ids.reshape(-1, 1), CONTEXT, axis=1)
    expected = kept_by_transformers(folder, each_everywhere)[0][0].mean(axis=(0, 2), dtype=np.float64)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(here).max())
    assert np.abs(here - expected).max() > 0.1 * np.abs(here).max(), "the text's own would have done"


def test_means_of_int4_keys_where_positions_are_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_means, "WORTH", np.inf)
    config = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT, "vocab_size": 96}
    folder = write_random(tmp_path / "gpt2", "gpt2", config)
    ids = np.random.default_rng(0).integers(0, 96, (3, 16))
    rows = [kept_by_transformers(folder, ids[row : row + 1], first) for row, first in enumerate((0, 40, 80))]
    for layer, found in enumerate(statistics_of(folder, "gpt2", ids).key_means.values()):
        expected = np.concatenate([row[layer][0] for row in rows]).mean(axis=(0, 2))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "there"), [("rotated", True), ("shared keys and values", True), ("capped scores", False), ("sinks", False)]
)
def test_keys_have_means_where_no_weight_depends_on_them(
    kind: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_means, "WORTH", np.inf)
    config = MODELS[kind].config()
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, 8))
    tensors, kv = folded_tensors(config, random_tensors(config, biases=False)), kv_spec(config)
    means = kv_statistics(tensors, config, kv, ids).key_means
    assert means.keys() == ({layer.past_key for layer in (*kv.layers, *kv.shared)} if there else set())
    for one in kv.shared:
        np.testing.assert_array_equal(means[one.past_key], means[kv.layers[one.source].past_key])


def test_a_mean_is_subtracted_where_keys_of_every_window_have_it() -> None:
    rng = np.random.default_rng(0)
    common = rng.choice([-1, 1], (3, 24)) * rng.uniform(3, 6, (3, 24))
    keys = rng.standard_normal((4, 3, 30, 24)) + common[:, None]
    keys[3, 1] -= 2 * common[1]  # the second head's of the last window are on the other side,
    keys[:, 2] -= common[2]  # and the third's have nothing in common
    mean, keys = keys.mean(axis=(0, 2)).astype(np.float32), keys.astype(np.float32)
    np.testing.assert_array_equal(key_means.worth_subtracting(mean, keys), mean * np.array([[1], [0], [0]]))


def test_both_int8_keys_of_a_pair_are_calibrated_for_all_positions(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96}
    more = {"num_hidden_layers": 1, "max_position_embeddings": CONTEXT, "vocab_size": 96}
    folder = write_random(tmp_path / "diffllama", "diffllama", {**sizes, **more})
    ids = np.random.default_rng(0).integers(0, 96, (2, 16))
    found = 127 * scales_of(folder, "diffllama", ids)["layers.0.attn.k_scale"] / ROTATED_MARGIN
    reached = [largest(kept_by_transformers(folder, ids, at)[0][0]) for at in range(CONTEXT - 16)]
    here, pairs = (np.concatenate([x[:, :2], x[:, 2:]], axis=-1) for x in (reached[0], np.maximum.reduce(reached)))
    assert found.shape == pairs.shape == (1, 2, 1, 32)
    assert (found >= 0.999 * pairs).all()
    assert (found <= 1.001 * np.abs(pairs).max()).all()
    assert (pairs > 1.2 * here).any(), "the text would have been enough"


def test_a_trained_model_holds_beyond_the_positions_of_the_text(test_data: Path, tmp_path: Path) -> None:
    bundle, report = export(
        str(test_data / "models" / "stories260K"), tmp_path / "bundle", ExportOptions(scheme="fp32")
    )
    assert report.variants["fp32-kv-int8"].mean_kl < 0.005
    text = (test_data / "corpora" / "tinystories_4MB.txt").read_text("utf-8")[-4000:]
    assert bundle.manifest.tokenizer
    ids = Tokenizer.from_file(bundle.file(bundle.manifest.tokenizer)).encode(text)[:512]
    exact, rounded = (log_probabilities(runner_of(bundle, kv=kv), ids)[256:] for kv in ("float32", "int8"))
    # 0.29 with the largest values of 256 positions and a quarter above them
    assert (np.exp(exact) * (exact - rounded)).sum(axis=1).mean() < 0.01
    if packed := report.variants.get("fp32-kv-int4"):
        assert packed.mean_kl < 0.2  # 0.38 without means of keys, and later too
        nibbles = log_probabilities(runner_of(bundle, kv="int4"), ids)[256:]
        assert (np.exp(exact) * (exact - nibbles)).sum(axis=1).mean() < 0.2


def log_probabilities(runner: Runner[Any], ids: list[int]) -> NDArray[np.float64]:
    """[t, vocab], all computed at once."""
    logits = decoded(runner, runner.new_cache(), ids).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def made(config: DecoderConfig, changes: Mapping[str, float]) -> dict[str, NDArray[np.float32]]:
    """Scales of a random model, some weights of which are filled with a value."""
    tensors = random_tensors(config, biases=False)
    for name, value in changes.items():
        tensors[name][: config.attention.head_dim] = value
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kv_statistics(folded_tensors(config, tensors), config, kv_spec(config), ids)
    return {name: x.read() for name, x in found.scales.items()}


@pytest.mark.parametrize("kind", ["rotated", "no positions"])
@pytest.mark.parametrize("value", [0.0, 1e-44, np.nan, np.inf])
def test_a_channel_without_a_value_to_go_by_has_a_scale_all_the_same(kind: str, value: float) -> None:
    config = replace(MODELS[kind], layers=MODELS[kind].layers[:1]).config()
    scales = made(config, {"layers.0.attn.k.weight": value, "layers.0.attn.v.weight": value})
    for scale in scales.values():
        assert (scale[:, 0] == 1).all()
        assert ((scale[:, 1] > 0) & (scale[:, 1] != 1)).all()


@pytest.mark.parametrize("kind", ["rotated", "no positions"])
def test_matrices_in_8_bits_give_nearly_the_same(kind: str) -> None:
    config = MODELS[kind].config()
    tensors = folded_tensors(config, random_tensors(config, biases=False))
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, 8))
    exact, rounded = (kv_statistics(tensors, config, kv_spec(config), ids, in_int8=way).scales for way in (False, True))
    assert exact.keys() == rounded.keys()
    assert any((exact[name].read() != rounded[name].read()).any() for name in exact)
    for name, scale in exact.items():
        np.testing.assert_allclose(rounded[name].read(), scale.read(), rtol=0.1)


@pytest.mark.parametrize("kind", sorted(kind for kind, model in MODELS.items() if rotary_tables(model.config())))
def test_states_that_are_known_give_the_same_without_running_whole_layers(kind: str) -> None:
    config = MODELS[kind].config()
    tensors, kv = folded_tensors(config, random_tensors(config, biases=False)), kv_spec(config)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (1, 8))
    reference, entered = LayerwiseModel(tensors, config, kv), dict[int, list[NDArray[np.float32]]]()
    states = [*reference.embedded([ids, other_texts(config.vocab_size, 8)])]
    for layer in range(config.num_layers):
        entered[layer] = states
        with reference.layer(layer, 8) as run:
            states = [run(x) for x in states]
    expected, found = (kv_statistics(tensors, config, kv, ids, entered=known) for known in (None, entered))
    assert found.scales.keys() == expected.scales.keys()
    assert found.key_means.keys() == expected.key_means.keys()
    for name, scale in expected.scales.items():
        np.testing.assert_allclose(found.scales[name].read(), scale.read(), rtol=1e-5)
    for name, mean in expected.key_means.items():
        np.testing.assert_allclose(found.key_means[name], mean, rtol=1e-4, atol=1e-6)


def test_values_of_another_text_fit_too() -> None:
    config = replace(MODELS["rotated"], layers=MODELS["rotated"].layers[:1]).config()
    tensors, rng = random_tensors(config, biases=False), np.random.default_rng(0)
    vocab, width = tensors["embed.weight"].shape
    sides = 2 * tensors["embed.weight"].std() * rng.standard_normal((2, width))  # of one half of all ids, and the other
    tensors["embed.weight"] = (tensors["embed.weight"] + sides.repeat(vocab // 2, axis=0)).astype(np.float32)
    ids = rng.integers(0, vocab // 2, (2, 64))
    model = LayerwiseModel(folded_tensors(config, tensors), config, kv_spec(config))
    with model.layer(0, 64) as run:
        own, other = (run.cached(model.embed(ids + more))[2] for more in (0, vocab // 2))
    scale = kv_statistics(folded_tensors(config, tensors), config, kv_spec(config), ids).scales["layers.0.attn.v_scale"]
    assert (np.abs(other) > MARGIN * largest(own)).mean() > 0.02, "the room above the text's would have been enough"
    assert (np.abs(other) > 127 * scale.read()).mean() < 0.002


def test_rows_of_ids_that_no_text_has_may_be_anything() -> None:
    config = replace(MODELS["rotated"], layers=MODELS["rotated"].layers[:1]).config()
    tensors = random_tensors(config, biases=False)
    half = len(tensors["embed.weight"]) // 2
    tensors["embed.weight"][half:] = np.nan
    ids = np.random.default_rng(0).integers(0, half, (2, 8))
    model = folded_tensors(config, tensors)
    with LayerwiseModel(model, config, kv_spec(config)).layer(0, 8) as run:
        values = run.cached(LayerwiseModel(model, config, kv_spec(config)).embed(ids))[2]
    scale = kv_statistics(model, config, kv_spec(config), ids).scales["layers.0.attn.v_scale"]
    np.testing.assert_allclose(scale.read(), MARGIN * largest(values) / 127, rtol=1e-4)


def test_every_layer_has_two(tmp_path: Path) -> None:
    config = MODELS["windows, norm of heads, one shared head"].config()
    scales = made(config, {})
    assert {name: scale.shape for name, scale in scales.items()} == {
        f"layers.{layer}.attn.{part}_scale": (1, 1, 1, 16) for layer in range(3) for part in "kv"
    }
