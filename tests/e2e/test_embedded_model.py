"""The model that comes with the package: current, self-sufficient, and worth reading."""

from pathlib import Path

import numpy as np
import pytest

from edgegen import LLM, Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.evaluation.parity.report import ParityReport
from edgegen_export.pipeline import export
from tests.root import ROOT

CHECKPOINT = ROOT / "models/stories"


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM.load()


def test_the_embedded_model_is_found_without_any_home() -> None:
    assert BundleStore().resolve(DEFAULT_MODEL).is_relative_to(ROOT / "edgegen")


@pytest.mark.slow
def test_the_embedded_model_is_what_its_checkpoint_exports_to(tmp_path: Path) -> None:
    bundle, exported = Bundle.open(BundleStore().resolve(DEFAULT_MODEL)), export(str(CHECKPOINT), tmp_path / "again")[0]
    embedded, again = bundle.manifest, exported.manifest
    assert embedded.files.keys() == again.files.keys()
    # Last digits of what is calibrated or measured depend on the processor, and the graphs' bytes on the onnx version.
    for name in embedded.files:
        if name.endswith((".onnx", "parity.json", "reference.npz", "weights.data", "moves.safetensors")):
            continue
        assert embedded.files[name] == again.files[name], name
    weights = [np.fromfile(one.file(one.variant.weights), np.uint8) for one in (bundle, exported)]
    assert np.mean(weights[0] != weights[1]) < 0.001
    assert (embedded.model, embedded.quantization, embedded.variants) == (
        again.model,
        again.quantization,
        again.variants,
    )


def test_the_embedded_model_is_small() -> None:
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 16_000_000
    assert Bundle.open(BundleStore().resolve(DEFAULT_MODEL)).nbytes <= 8_000_000


def test_quantization_cost_it_next_to_nothing(llm: LLM) -> None:
    for name, parity in ParityReport.read(llm.bundle).variants.items():
        assert parity.top1_agreement >= (0.93 if name.endswith("-kv-int4") else 0.97)
        assert abs(parity.perplexity_change) <= 0.01


@pytest.mark.parametrize("prompt", ["Once upon a time", "One day, a little girl named Lily", "The dragon", ""])
def test_its_stories_do_not_loop_and_mostly_come_to_an_end(llm: LLM, prompt: str) -> None:
    """Under the default sampling; the seeds are the first ones, not chosen."""
    ended = 0
    for stream in [llm.stream(prompt, seed=seed) for seed in range(8)]:
        story = stream.wait()
        words = story.text.split()
        fours = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        assert len(words) > 10
        assert len(set(fours)) > 0.7 * len(fours), story.text
        ended += story.finish_reason == "stop"
    assert ended >= 4


def test_a_story_goes_on_as_a_story(llm: LLM) -> None:
    starts = [llm.generate("Once upon a time", seed=seed, max_new_tokens=6).text for seed in range(5)]
    assert all(b.startswith((",", " there")) for b in starts), starts
