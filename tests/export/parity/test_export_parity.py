"""Parity of an export: the unquantized model is run, layers compared, warnings given, a picture drawn."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphContract, Manifest, MatrixFormat, Quantization
from edgegen.errors import ExportError, UsageError
from edgegen.evaluation.parity.measure import greedy, log_probabilities, parity_of
from edgegen.evaluation.parity.reference import LIKELIEST, UNKNOWN
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen.model.concat_runner import ConcatRunner
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import build_states, kv_spec, rotary_tables
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.options import ExportOptions
from edgegen_export.parity.compare import OnStates, continuations, record_reference
from edgegen_export.parity.extent import LARGE, LARGER, Extent
from edgegen_export.parity.layer_errors import layer_errors
from edgegen_export.parity.plot import check_plot, plot_layers
from edgegen_export.parity.sample_text import SAMPLE_TEXT
from edgegen_export.parity.warnings import parity_warnings
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import CALIBRATED, ROUNDED, Scheme, of_ternary
from tests.export.bundles import Listener
from tests.export.graph.test_blocks import MODELS, Weights, folded_tensors, random_tensors
from tests.runtime.evaluation.test_parity import greedy_by_hand
from tests.runtime.models import FakeGraphs, RandomGraphs, fake_runner, fake_variant, write_fake_bundle
from tests.toy_decoder import POSITIONS, VOCABULARY, ToyGraphs, toy_logits, toy_variant, toy_weights

pytestmark = pytest.mark.usefixtures("whole_parity")

Ids = NDArray[np.int64]
Array = NDArray[np.float32]


class Model:
    """Fake graphs in the place of the unquantized model; counts how often it runs."""

    def __init__(self, graphs: FakeGraphs) -> None:
        self.graphs = graphs
        self.passes = 0

    def hidden(self, texts: Sequence[Ids], on_states: OnStates | None = None) -> list[Array]:
        self.passes += 1
        return [
            np.array([[self.graphs.logits(row[: at + 1]) for at in range(len(row))] for row in ids.tolist()])
            for ids in texts
        ]

    def logits(self, hidden: Array) -> Array:
        return hidden


class Forgetful(RandomGraphs):
    """The same model, but for something else at the given lengths of a text."""

    def __init__(self, *lengths: int) -> None:
        super().__init__()
        self.lengths = lengths

    def logits(self, ids: list[int]) -> Array:
        found = super().logits(ids)
        return -found if len(ids) in self.lengths else found


IDS: Ids = np.random.default_rng(3).integers(0, 256, (2, 64))
PROMPTS: Ids = IDS[:, :5]


@pytest.mark.parametrize(
    ("lengths", "rounds", "passes", "known"),
    [((), 2, 1, 20), ((8,), 2, 2, 20), ((8,), 1, 1, 4), ((8, 9, 17), 2, 2, 5), ((6, 9, 11, 13, 17), 2, 2, 5)],
)
def test_a_models_continuations_are_those_of_decoding_it_token_by_token(
    lengths: tuple[int, ...], rounds: int, passes: int, known: int
) -> None:
    model = Model(RandomGraphs())
    texts = np.concatenate([PROMPTS, greedy(fake_runner(Forgetful(*lengths)), PROMPTS, 20)], axis=1)
    states = model.hidden([texts])
    found = continuations(model, lambda: fake_runner(Forgetful(*lengths)), texts, 20, states, rounds)
    expected: Ids = np.array([greedy_by_hand(RandomGraphs(), prompt, 20) for prompt in PROMPTS.tolist()])
    expected[:, known:] = UNKNOWN
    np.testing.assert_array_equal(found, expected)
    assert model.passes == passes


def test_what_a_model_says_is_kept() -> None:
    graphs = RandomGraphs()
    said, drafted = record_reference(model := Model(graphs), IDS, 512, lambda: fake_runner(graphs))
    assert model.passes == 1
    np.testing.assert_array_equal(drafted, said.continuations)
    assert said.likeliest.shape == (2, 64, LIKELIEST)
    for window, row in enumerate(IDS.tolist()):
        for at in range(len(row)):
            log_p = log_probabilities(graphs.logits(row[: at + 1]))
            best = np.argsort(-log_p, kind="stable")[:LIKELIEST]
            np.testing.assert_array_equal(said.likeliest[window, at], best)
            np.testing.assert_allclose(said.logprobs[window, at], log_p[best], rtol=1e-6)
            assert np.exp(said.rest[window, at]) == pytest.approx(1 - np.exp(log_p[best]).sum(), abs=1e-6)
            if at + 1 < len(row):
                assert said.following[window, at] == pytest.approx(log_p[row[at + 1]])
    assert (said.prompts.shape, said.continuations.shape) == ((8, 16), (8, 16))


@pytest.mark.parametrize("max_context", [1, 2, 3, 20])
def test_prompts_and_what_follows_fit_a_small_context(max_context: int) -> None:
    graphs = RandomGraphs()
    said, _ = record_reference(
        Model(graphs), IDS[:, :max_context], max_context, lambda: fake_runner(graphs, max_context)
    )
    prompts, length = said.prompts.shape
    assert prompts == (8 if max_context > 1 else 0)
    assert length + said.continuations.shape[1] <= max_context


def test_a_model_that_says_nothing_finite_is_broken() -> None:
    class Broken(RandomGraphs):
        def logits(self, ids: list[int]) -> Array:
            return super().logits(ids) * np.float32(np.inf if len(ids) == 50 else 1)

    with pytest.raises(ExportError, match="the checkpoint itself, unquantized, gives logits that are not finite"):
        record_reference(Model(Broken()), IDS, 512, lambda: fake_runner(RandomGraphs()))


def test_traced_graphs_are_compared_like_others() -> None:
    weights = toy_weights()
    coarse = {name: (np.round(array * 24) / 24).astype(np.float32) for name, array in weights.items()}

    class Toy:
        def hidden(self, texts: Sequence[Ids], on_states: OnStates | None = None) -> list[Array]:
            return [np.array([toy_logits(weights, row) for row in ids.tolist()]) for ids in texts]

        def logits(self, hidden: Array) -> Array:
            return hidden

    def runner(weights: Any) -> ConcatRunner:
        return ConcatRunner(ToyGraphs(weights), toy_variant(), VOCABULARY, POSITIONS)

    ids: Ids = np.random.default_rng(5).integers(0, VOCABULARY, (2, 40))
    said, _ = record_reference(Toy(), ids, POSITIONS, lambda: runner(coarse))
    exact, rounded = (parity_of(lambda _, w=w: runner(w), said) for w in (weights, coarse))
    expected, found = (np.array([toy_logits(w, row) for row in ids.tolist()]) for w in (weights, coarse))
    log_p, log_q = (np.array([[log_probabilities(x) for x in row] for row in logits]) for logits in (expected, found))
    assert (exact.greedy_flipped, exact.top1_agreement) == (0, 1)
    assert exact.mean_kl < 1e-9 < rounded.mean_kl
    assert rounded.mean_kl == pytest.approx((np.exp(log_p) * (log_p - log_q)).sum(-1).mean(), rel=1e-3)
    assert rounded.top1_agreement == pytest.approx((log_p.argmax(-1) == log_q.argmax(-1)).mean())


def test_large_models_are_compared_on_less() -> None:
    assert Extent.of(LARGE - 1) == Extent(windows=2, length=256, prompts=4, tokens=16, rounds=2, states=128)
    extent = Extent.of(LARGE)
    assert extent == Extent.of(LARGER - 1) == Extent(windows=1, length=256, prompts=2, tokens=8, rounds=1, states=64)
    assert Extent.of(LARGER) == Extent(windows=1, length=128, prompts=1, tokens=8, rounds=1, states=32)
    model = Model(RandomGraphs())
    said, drafted = record_reference(model, IDS[:1], 512, lambda: fake_runner(Forgetful(20, 22)), extent)
    assert (said.prompts.shape, said.continuations.shape, model.passes) == ((2, 16), (2, 8), 1)
    np.testing.assert_array_equal(said.continuations[:, :4], drafted[:, :4])
    assert (said.continuations[:, 4] != drafted[:, 4]).all()
    assert (said.continuations[:, 5:] == UNKNOWN).all()


def test_what_was_drafted_is_not_decoded_again() -> None:
    model = Model(RandomGraphs())
    said, drafted = record_reference(model, IDS, 512, lambda: fake_runner(Forgetful(30)))
    found, again = (parity_of(lambda _: fake_runner(Forgetful(30)), said, None, known) for known in (drafted, None))
    assert found == again
    assert found.greedy_flipped == 8
    assert parity_of(lambda _: fake_runner(Forgetful(30)), said, None, said.continuations).greedy_flipped == 0


# Layers.


@pytest.mark.parametrize(
    "kind",
    [
        *("learned positions", "capped scores", "two ropes", "alibi and windows"),
        *("shared keys and values", "embeddings of layers"),
    ],
)
def test_a_layers_error_is_the_relative_distance_of_its_states(kind: str, tmp_path: Path) -> None:
    config = MODELS[kind].config()
    tensors = folded_tensors(config, random_tensors(config, biases=config.norm.kind == "layer"))
    weights, kv = Weights(), kv_spec(config)
    params = StoredParameters(tensors, ROUNDED["fp32"], weights, lambda elements: None)
    graph = build_states(config, params, kv).model("weights.data").SerializeToString()
    bundle = write_fake_bundle(tmp_path / "bundle", max_context=config.max_positions)
    sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size, "num_layers": config.num_layers}
    model = replace(bundle.manifest.model, **sizes)
    bundle = replace(bundle, manifest=replace(bundle.manifest, model=model))
    bundle.file("weights.data").write_bytes(weights.data)
    rotary = tuple(rotary_tables(config).values())
    variant = replace(fake_variant(), kv=kv, contract=GraphContract(), rotary=rotary)
    reference = LayerwiseModel(tensors, config, kv)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, 30))
    grown = [states[0] * np.float32(1 + 0.25 * layer) for layer, states in enumerate(reference.states(ids))]
    found = layer_errors(bundle, variant, graph, grown, ids, Scratch())
    assert found == pytest.approx([0.25 * i / (1 + 0.25 * i) for i in range(len(config.layers))], abs=1e-5)
    assert not [path for path in bundle.content.iterdir() if path.name not in bundle.manifest.files]


def test_layers_of_an_export_are_exact_in_floats_and_near_in_int8(
    checkpoint: Path, int8_bundle: Bundle, tmp_path: Path
) -> None:
    _, exact = export(str(checkpoint), tmp_path / "fp32", ExportOptions(scheme="fp32"))
    assert len(exact.layer_errors["fp32"]) == 3
    assert max(exact.layer_errors["fp32"]) < 1e-5
    rounded = ParityReport.read(int8_bundle).layer_errors
    assert rounded.keys() == {"int8", "int8-kv-int8"}
    assert all(1e-3 < error < 0.1 for errors in rounded.values() for error in errors)


# Shortfalls.


WELL = VariantParity(0.0004, 0.01, 0.99, 0.2, 20.02, 0.001, 0.0005, 1, 0.03, 0.0)
BAD = replace(WELL, mean_kl=0.6, perplexity_change=0.5, perplexity_change_error=0.1)


def told(
    scheme: Scheme,
    fast: bool,
    first: VariantParity,
    second: VariantParity = WELL,
    *,
    can_be_calibrated: bool = True,
    ternary: bool = False,
) -> list[str]:
    """The shortfalls of a bundle whose variants, with a float32 and an int8 cache, are so near to their model."""
    fake = fake_variant()
    variants = (replace(fake, name="a"), replace(fake, name="b", kv=replace(fake.kv, dtype="int8")))
    form = MatrixFormat(8, 64, True, 4)
    manifest = Manifest(
        1, "x", "v1", None, None, Quantization("int8", form, form), variants, None, "g", "p", "r", {}  # type: ignore[arg-type]
    )  # fmt: skip
    recipe = of_ternary(scheme) if ternary else (ROUNDED if fast else CALIBRATED)[scheme]
    manifest = replace(manifest, quantization=recipe)
    report = ParityReport("t", 512, 128, 8, 24, 20.0, {"a": first, "b": second}, {}, 1, 1)
    return parity_warnings(report, manifest, can_be_calibrated=can_be_calibrated)


@pytest.mark.parametrize(
    ("scheme", "fast", "can_be_calibrated", "fix"),
    [
        ("int8", True, True, "export it without --fast"),
        ("int8", False, True, "export it with --fp16"),
        ("int8", True, False, "export it with --fp16"),
        ("int4", True, True, "export it without --fast"),
        ("int4", False, True, "export it with a larger --bits-budget, or with --int8"),
        ("fp16", False, True, "export it with --fp32"),
        ("fp32", False, True, "nothing was rounded, so please report this model"),
    ],
)
def test_a_bundle_beyond_its_limits_is_told_with_the_fix(
    scheme: Scheme, fast: bool, can_be_calibrated: bool, fix: str
) -> None:
    cost = "mean KL 0.6 nats, perplexity +50.00% ± 10.00%, top-1 agreement 99.0%"
    found = told(scheme, fast, BAD, BAD, can_be_calibrated=can_be_calibrated)
    assert found == [f"a costs this model much ({cost}): {fix}"]
    exact = replace(WELL, mean_kl=0.0, perplexity_change=0.0)
    assert told(scheme, fast, exact, exact, can_be_calibrated=can_be_calibrated) == []


@pytest.mark.parametrize(
    ("scheme", "fix"),
    [("int8", "with --fp16"), ("int4", "with --fp16"), ("fp16", "with --fp32"), ("fp32", "please report this model")],
)
def test_a_ternary_model_may_cost_what_int8_may(scheme: Scheme, fix: str) -> None:
    assert told(scheme, False, WELL, can_be_calibrated=False, ternary=True) == []
    (text,) = told(scheme, False, BAD, BAD, can_be_calibrated=False, ternary=True)
    assert text.endswith(fix)


def test_perplexity_counts_beyond_its_noise_only() -> None:
    assert told("int8", False, replace(WELL, perplexity_change=0.02, perplexity_change_error=0.009)) == []
    assert told("int8", False, replace(WELL, perplexity_change=0.02, perplexity_change_error=0.001)) != []


def test_an_int8_cache_that_costs_more_than_the_weights_is_told() -> None:
    (text,) = told("int8", False, WELL, replace(WELL, mean_kl=0.02))
    assert text.startswith("a KV cache in int8 costs this model much (mean KL 0.02 nats,")
    assert text.endswith("a float32 one 0.0004 nats): run it with the float32 KV cache, the default")


def test_outliers_rounded_plainly_are_told_by_a_real_export(test_data: Path, tmp_path: Path) -> None:
    source, heard = str(test_data / "models" / "stories260K-outliers"), Listener()
    export(source, tmp_path / "bundle", ExportOptions(fast=True), progress=heard)
    (text,) = [text for text in heard.warnings if text.startswith("int8-kv-int8 costs this model much")]
    assert text.endswith("export it without --fast")
    better = Listener()
    export(source, tmp_path / "bundle", ExportOptions(force=True), progress=better)
    assert not any("cost" in text for text in better.warnings)


# The text.


def test_a_text_of_ones_own_is_compared_on(checkpoint: Path, tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text(SAMPLE_TEXT)
    _, sample = export(str(checkpoint), tmp_path / "a", ExportOptions(scheme="fp32"))
    bundle, mine = export(str(checkpoint), tmp_path / "b", ExportOptions(scheme="fp32", eval_text=text))
    assert mine == replace(sample, text="mine.txt")
    assert mine == ParityReport.read(bundle)
    text.write_text("Other words. " * 30)
    _, other = export(str(checkpoint), tmp_path / "c", ExportOptions(scheme="fp32", eval_text=text))
    assert (other.tokens, other.text) == (256, "mine.txt")  # one window
    assert other.perplexity_reference != sample.perplexity_reference
    weights = [tmp_path / name / "v1" / "weights.data" for name in "ac"]
    assert weights[0].read_bytes() == weights[1].read_bytes()  # nothing is calibrated on it


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"too short", "has 9 tokens; at least 64 are needed"),
        (b"\xff\xfe" * 200, "cannot be read: .*codec can't decode"),
        (b"", "has 0 tokens"),
    ],
)
def test_a_text_of_no_use_is_refused(checkpoint: Path, tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "mine.txt").write_bytes(data)
    with pytest.raises(UsageError, match=message):
        export(str(checkpoint), tmp_path / "bundle", ExportOptions(eval_text=tmp_path / "mine.txt"))
    assert not (tmp_path / "bundle").exists()


# The picture.


REPORT = ParityReport("t", 512, 128, 8, 24, 20.0, {"a": WELL}, {"a": (0.01, 0.02, 0.015)}, 1, 1)


@pytest.mark.parametrize(
    ("name", "traced", "message"),
    [
        ("plot.pdf", False, "a name that ends with .png, not 'plot.pdf'"),
        ("nowhere/plot.png", False, "its folder does not exist"),
        ("plot.png", True, "the layers of a traced model are not known"),
    ],
)
def test_a_picture_that_cannot_be_is_refused(tmp_path: Path, name: str, traced: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_plot(tmp_path / name, traced=traced)


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'pip install "edgegen\[plot\]"'):
        check_plot(tmp_path / "plot.png", traced=False)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn by matplotlib, which is not installed")
    path = tmp_path / "plot.png"
    check_plot(path, traced=False)
    plot_layers(REPORT, "tiny", path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(ExportError, match="was not written"):
        plot_layers(REPORT, "tiny", tmp_path / "nowhere" / "plot.png")
