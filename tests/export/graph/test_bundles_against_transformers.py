"""Bundles against transformers: same logits and greedy ids; the quality loss of int8, also in parity.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UnsupportedModelError
from edgegen.evaluation.parity.reference import UNKNOWN, ParityReference
from edgegen.evaluation.parity.report import ParityReport
from edgegen.llm import LLM
from edgegen_export.options import ExportOptions
from edgegen_export.parity.sample_text import SAMPLE_TEXT
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, export_to, prefilled, random_ids, runner_of
from tests.export.checkpoint.layouts import write_gpt2
from tests.oracle import Oracle, import_transformers, write_random_gpt2

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("whole_parity")]

TOLERANCE = 1e-3
"""Largest allowed difference of any float32 logit."""

GEOMETRIES: dict[str, dict[str, Any]] = {
    "wide mlp": {"n_inner": 200},
    "narrow mlp": {"n_inner": 8},
    "exact gelu": {"activation_function": "gelu"},
    "tanh gelu under its other name": {"activation_function": "gelu_pytorch_tanh"},
    "fast gelu": {"activation_function": "gelu_fast"},
    "relu": {"activation_function": "relu"},
    "silu": {"activation_function": "silu"},
    "unscaled attention": {"scale_attn_weights": False},
    "attention scaled by layer": {"scale_attn_by_inverse_layer_idx": True, "n_layer": 3},
    "reordered and upcast": {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    "sorter's shape": {"n_embd": 48, "n_head": 3, "vocab_size": 3, "n_positions": 11, "n_layer": 3},
    "odd vocabulary": {"vocab_size": 101},
    "one token": {"vocab_size": 1},
    "heads of 8": {"n_embd": 32, "n_head": 4},
    "heads of 24": {"n_embd": 48, "n_head": 2},
    "one head of 160": {"n_embd": 160, "n_head": 1, "n_layer": 1},
    "one position": {"n_positions": 1},
    "large epsilon": {"layer_norm_epsilon": 0.1},
    "untied": {"tie_word_embeddings": False},
}


def greatest_difference(folder: Path, bundle: Bundle | Path) -> float:
    """Of a checkpoint's bundle, or of one that is exported to a folder, over whole sequences: decoded at once, in
    prefill chunks, and chunks followed by single decode steps."""
    oracle = Oracle(folder)  # before anything is exported in vain
    bundle = export_to(folder, bundle) if isinstance(bundle, Path) else bundle
    runner = runner_of(bundle)
    length = bundle.manifest.model.max_context
    difference = 0.0
    for seed in range(2):
        ids = random_ids(bundle, length, seed)
        expected = oracle.logits(np.array([ids]))[0]

        def compare(found: NDArray[np.float32], positions: list[int], expected: NDArray[np.float32] = expected) -> None:
            nonlocal difference
            difference = max(difference, float(np.abs(found - expected[positions]).max()))

        compare(decoded(runner, runner.new_cache(), ids), list(range(length)))
        for chunk in (3, 7, length):
            ends = [min(at + chunk, length) - 1 for at in range(0, length, chunk)]
            compare(prefilled(runner, runner.new_cache(), ids, chunk), ends)
        cache, prompt = runner.new_cache(), (length + 1) // 2
        prefilled(runner, cache, ids[:prompt], 5)
        for at in range(prompt, length):
            compare(decoded(runner, cache, ids[at : at + 1]), [at])
    return difference


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["original", "trainer", "untied", "tied_with_head"])
def test_every_layout_gives_the_logits_of_transformers(tmp_path: Path, layout: Any, dtype: str, shards: int) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout=layout, dtype=dtype, shards=shards, n_positions=24)
    assert greatest_difference(folder, tmp_path / "bundle") <= TOLERANCE


@pytest.mark.parametrize("config", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_every_geometry_gives_the_logits_of_transformers(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_random_gpt2(tmp_path / "checkpoint", **{"n_positions": 20, **config})
    assert greatest_difference(folder, tmp_path / "bundle") <= TOLERANCE


@pytest.mark.parametrize("size", [1, 5, 12, 20, 28])
def test_heads_that_the_attention_operator_does_not_take_are_refused(tmp_path: Path, size: int) -> None:
    folder = write_random_gpt2(tmp_path / "checkpoint", n_embd=4 * size, n_head=4, n_layer=1)
    with pytest.raises(UnsupportedModelError, match=rf"n_embd / n_head = {size}: .*only multiples of 8"):
        export_to(folder, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_every_key_that_transformers_writes_is_understood(tmp_path: Path) -> None:
    transformers = import_transformers()
    folder = write_random_gpt2(tmp_path / "checkpoint", n_layer=1, n_positions=8)
    config = json.loads((folder / "config.json").read_text())
    everything = transformers.GPT2Config.from_pretrained(str(folder)).to_dict()
    (folder / "config.json").write_text(json.dumps(everything | config, default=str))
    assert greatest_difference(folder, tmp_path / "bundle") <= TOLERANCE


# Real models.


@pytest.fixture(scope="module")
def stories(test_data: Path) -> Path:
    return test_data / "models" / "gpt2-stories-0.9m"


@pytest.fixture(scope="module")
def stories_fp32(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_to(stories, tmp_path_factory.mktemp("stories") / "fp32")


@pytest.fixture(scope="module")
def stories_int8(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_to(stories, tmp_path_factory.mktemp("stories") / "int8", "int8")


@pytest.fixture(scope="module")
def held_out_text(test_data: Path) -> str:
    """The held-out part of the corpus of the stories model."""
    text = (test_data / "corpora" / "tinystories_4MB.txt").read_text("utf-8")
    return text[int(len(text) * 0.94) :]


def test_a_trained_model_gives_the_logits_of_transformers(stories: Path, stories_fp32: Bundle) -> None:
    assert greatest_difference(stories, stories_fp32) <= TOLERANCE


def test_a_trained_model_gives_its_golden_logits_and_ids(stories: Path, stories_fp32: Bundle) -> None:
    golden = json.loads((stories / "golden.json").read_text())
    llm = LLM.load(stories_fp32.path)
    runner = runner_of(stories_fp32)
    for case in golden["cases"]:
        assert llm.encode(case["prompt"]) == case["ids"]
        logits = prefilled(runner, runner.new_cache(), case["ids"], len(case["ids"]))[-1]
        for token, value in case["top"]:
            assert logits[token] == pytest.approx(value, abs=TOLERANCE)
        prompt: str = case["prompt"]
        found = llm.generate(prompt, do_sample=False, max_new_tokens=len(case["greedy_ids"]))
        assert list(found.token_ids) == case["greedy_ids"]


def test_greedy_ids_are_those_of_transformers_for_128_tokens_of_24_prompts(
    stories: Path, stories_fp32: Bundle, held_out_text: str
) -> None:
    llm = LLM.load(stories_fp32.path)
    ids = llm.encode(held_out_text[:20_000])
    lengths = (1, 3, 8, 17, 40, 100)
    prompts = [ids[150 * k : 150 * k + lengths[k % len(lengths)]] for k in range(24)]
    expected = Oracle(stories).greedy(prompts, 128)
    for prompt, answer in zip(prompts, expected, strict=True):
        found = llm.generate(prompt, do_sample=False, max_new_tokens=128, eos_token_id=[])
        assert list(found.token_ids) == answer


def test_the_sorter_gives_its_golden_logits(test_data: Path, tmp_path: Path) -> None:
    folder = test_data / "models" / "gpt-nano-sort"
    golden = np.load(folder / "golden_logits.npz")
    runner = runner_of(export_to(folder, tmp_path / "bundle"))
    for ids, expected in zip(golden["idx"], golden["logits"], strict=True):
        np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=TOLERANCE)


def test_the_sorter_sorts_in_int8(test_data: Path, tmp_path: Path) -> None:
    bundle = export_to(test_data / "models" / "gpt-nano-sort", tmp_path / "bundle", "int8")
    llm = LLM.load(bundle.path)
    for digits in ([2, 0, 1, 2, 1, 0], [0, 0, 2, 1, 0, 1], [1, 1, 1, 0, 2, 2]):
        assert list(llm.generate(digits, max_new_tokens=6).token_ids) == sorted(digits)


# Quality loss of int8.


def perplexity(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> float:
    """Perplexity of windows [w, t] from logits [w, t, vocab], without the first id of each."""
    shifted = logits[:, :-1].astype(np.float64)
    log_p = shifted - np.logaddexp.reduce(shifted, axis=-1, keepdims=True)
    return float(np.exp(-np.take_along_axis(log_p, ids[:, 1:, None], axis=-1).mean()))


def windows(bundle: Bundle, text: str, count: int, length: int = 256) -> NDArray[np.int64]:
    return np.array(LLM.load(bundle.path).encode(text)[: count * length], np.int64).reshape(count, length)


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    return wide - np.logaddexp.reduce(wide, axis=-1, keepdims=True)


def bundle_logits(bundle: Bundle, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    runner = runner_of(bundle)
    return np.array([decoded(runner, runner.new_cache(), row.tolist()) for row in ids])


def test_int8_agrees_with_transformers_on_held_out_text(
    stories: Path, stories_int8: Bundle, held_out_text: str
) -> None:
    ids = windows(stories_int8, held_out_text, count=8)
    expected, found = Oracle(stories).logits(ids), bundle_logits(stories_int8, ids)
    assert (expected.argmax(-1) == found.argmax(-1)).mean() >= 0.97
    assert abs(perplexity(found, ids) / perplexity(expected, ids) - 1) <= 0.005


@pytest.mark.parametrize("bundle_name", ["stories_fp32", "stories_int8"])
def test_the_parity_report_says_what_an_independent_computation_finds(
    request: pytest.FixtureRequest, stories: Path, bundle_name: str
) -> None:
    bundle: Bundle = request.getfixturevalue(bundle_name)
    report = ParityReport.read(bundle)
    parity = report.preferred
    ids = windows(bundle, SAMPLE_TEXT, count=2)
    expected, found = Oracle(stories).logits(ids), bundle_logits(bundle, ids)
    log_p, log_q = log_probabilities(expected), log_probabilities(found)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    assert (report.text, report.tokens) == ("sample text", ids.size)
    assert 0.8 * kl.mean() - 1e-9 <= parity.mean_kl <= 1.001 * kl.mean() + 1e-9  # others than the likeliest are as one
    assert 0.5 * kl.max() - 1e-9 <= parity.max_kl <= 1.001 * kl.max() + 1e-9
    assert parity.top1_agreement == pytest.approx((expected.argmax(-1) == found.argmax(-1)).mean(), abs=0.004)
    assert report.perplexity_reference == pytest.approx(perplexity(expected, ids), rel=1e-4)
    assert parity.perplexity == pytest.approx(perplexity(found, ids), rel=1e-3)
    worse = np.take_along_axis(log_p - log_q, np.roll(ids, -1, axis=1)[..., None], axis=-1)[:, :-1].reshape(-1)
    assert parity.perplexity_change == pytest.approx(np.exp(worse.mean()) - 1, abs=1e-4)
    assert parity.perplexity_change_error == pytest.approx(worse.std() / np.sqrt(worse.size), rel=0.02, abs=1e-6)


def test_the_continuations_in_the_reference_are_those_of_transformers(stories: Path, stories_int8: Bundle) -> None:
    model = stories_int8.manifest.model
    path = stories_int8.file(stories_int8.manifest.parity_reference)
    reference = ParityReference.load(path, model.vocab_size, model.max_context)
    expected = Oracle(stories).greedy(reference.prompts.tolist(), reference.continuations.shape[1])
    known = reference.continuations != UNKNOWN
    assert known.mean() > 0.9
    np.testing.assert_array_equal(reference.continuations[known], np.array(expected)[known])


def test_the_reports_of_a_trained_model_are_good(stories_fp32: Bundle, stories_int8: Bundle) -> None:
    exact, rounded = (ParityReport.read(bundle).preferred for bundle in (stories_fp32, stories_int8))
    assert exact.top1_agreement == 1
    assert exact.greedy_flipped == 0
    assert exact.max_logprob_diff <= TOLERANCE
    assert exact.prefill_max_diff <= TOLERANCE
    assert rounded.top1_agreement >= 0.97
    assert abs(rounded.perplexity_change) <= 0.005


@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_the_manifest_describes_the_model_as_transformers_counts_it(tmp_path: Path, scheme: Any) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="tied_with_head", n_positions=24)
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme=scheme))
    model, oracle = bundle.manifest.model, Oracle(folder).model
    assert model.parameters == oracle.num_parameters()
    assert (model.family, model.num_layers, model.hidden_size) == ("gpt2", 2, 64)
    assert (model.vocab_size, model.max_context) == (oracle.config.vocab_size, oracle.config.n_positions)
    assert bundle.variant_with("float32").kv.bytes_per_token == 2 * 2 * 64 * 4


def test_a_head_of_its_own_is_counted(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="untied", n_positions=24)
    assert export_to(folder, tmp_path / "bundle").manifest.model.parameters == Oracle(folder).model.num_parameters()
