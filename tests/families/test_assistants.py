"""Gemma 4's assistants: the graph computes what transformers does, over the model's own KV cache, and texts stay the
model's own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions, GenerationOptions, Session
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.errors import EdgegenError
from edgegen.model.kernels import kernel_library
from edgegen.model.loading import open_runner
from edgegen.speculation.cache_head import CacheHead
from edgegen.speculation.cache_proposer import CacheProposer
from edgegen.speculation.mtp_head import open_mtp_head
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import random_ids
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.second_oracle import SECOND, RemoteOracle, write_random

Array = NDArray[Any]
STEPS = 3
KINDS = ("float32", "int8", "int4")

ORDERED = {"use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 3}
SUBJECTS = {
    "gemma4_text: E2B": ORDERED,
    "gemma4_text: base": {},
    "gemma4_unified_text: base": ORDERED,
    "gemma4_text: heads of 24": {"tie_word_embeddings": False},
}
"""The cases of the models, and what the configs of their assistants say."""

OF_MODEL = (
    "num_attention_heads",
    "num_key_value_heads",
    "num_global_key_value_heads",
    "head_dim",
    "global_head_dim",
    "attention_k_eq_v",
    "sliding_window",
    "rope_parameters",
    "max_position_embeddings",
    "vocab_size",
    "pad_token_id",
)
"""Keys that an assistant shares with its model, for it reads what that keeps."""


@dataclass(frozen=True)
class Subject:
    """A model, an assistant of it, and the bundle of both in float32."""

    name: str
    model: Path
    assistant: Path
    bundle: Bundle

    @property
    def config(self) -> dict[str, Any]:
        return json.loads((self.assistant / "config.json").read_text("utf-8"))


def _write_assistant(model: Mapping[str, Any], folder: Path, own: Mapping[str, Any]) -> Path:
    kind = model["model_type"].removesuffix("_text")
    text = {
        "model_type": model["model_type"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "num_kv_shared_layers": 4,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        **{key: model[key] for key in OF_MODEL if key in model},
    }
    config = {"text_config": text, "backbone_hidden_size": model["hidden_size"], **own}
    return write_random(folder, f"{kind}_assistant", config, seed=4, version=SECOND)


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder, name = tmp_path_factory.mktemp("assistant"), request.param
    case = next(one for one in CASES if str(one) == name)
    model = checkpoint_of(case, folder / "model")
    config = {"model_type": case.family, **case.config}
    assistant = _write_assistant(config, folder / "assistant", SUBJECTS[name])
    bundle = export(str(model), folder / "bundle", ExportOptions(scheme="fp32", draft_head=str(assistant)))[0]
    return Subject(name, model, assistant, bundle)


ONE = pytest.mark.parametrize("subject", ["gemma4_text: E2B"], indirect=True)
"""Mark of tests in which all subjects are alike."""


@dataclass(frozen=True)
class Proposed:
    """Proposals of a head: ids, their logits [steps, vocab], and the hidden states [size] that it began with."""

    ids: list[int]
    logits: Array
    hidden: Array


def _proposed(
    bundle: Bundle,
    ids: Sequence[int],
    chunk: int,
    kv: KVDtype = "float32",
    kernels: Any = "auto",
    hidden: Array | None = None,
) -> Proposed:
    """Return the head's proposals after ``ids``, of which all but the last run in chunks; ``hidden``: in the place of
    the model's own."""
    options, heard = EngineOptions(threads=1, kv=kv, kernels=kernels, speculate="mtp"), list[Array]()
    runner = open_runner(bundle, options)
    head, cache = open_mtp_head(bundle, options, runner), runner.new_cache()
    assert isinstance(head, CacheHead)
    for at in range(0, len(ids) - 1, chunk):
        part = ids[at : min(at + chunk, len(ids) - 1)]
        runner.prefill(cache, 0, part, lambda one: heard.append(one.copy()))
    assert {one.shape for one in heard} == {(1, bundle.manifest.model.hidden_size)}
    first: Array = heard[-1][-1] if hidden is None else hidden
    last, chosen, found = first, [ids[-1]], list[Array]()
    binding = head.begin(cache, 0, len(ids) - 1)
    while len(found) < STEPS:
        logits, last = head.run(binding, chosen[-1], last)
        found.append(logits.copy())
        chosen.append(int(logits.argmax()))
    assert cache.lengths[0] == len(ids) - 1
    for one in (head, runner):
        one.close()
    return Proposed(chosen[1:], np.array(found), first)


def _apart(found: Array, expected: Array) -> float:
    """How far logits [vocab] are from others, in deviations of these, where both have them."""
    seen = np.isfinite(found) & np.isfinite(expected)
    assert seen.sum() >= 8
    return float(np.std(found[seen] - expected[seen]) / np.std(expected[seen]))


@pytest.mark.parametrize("kernels", ["auto", "stock"])
@pytest.mark.parametrize(("count", "chunk"), [(3, 8), (31, 31), (50, 7)])
def test_it_proposes_what_transformers_does(subject: Subject, count: int, chunk: int, kernels: Any) -> None:
    """Within the window and beyond it; those that are not among the clusters chosen have no logits."""
    ids = random_ids(subject.bundle, count, seed=count)
    chosen, expected = RemoteOracle(subject.model).proposed(subject.assistant, ids, STEPS)
    made = _proposed(subject.bundle, ids, chunk, kernels=kernels)
    assert made.ids == chosen
    found = made.logits
    unseen = np.isneginf(found)
    assert unseen.any() == ("use_ordered_embeddings" in SUBJECTS[subject.name])
    if unseen.any():
        np.testing.assert_array_equal(unseen, expected == expected.min(-1, keepdims=True))
    most = max(1.0, np.abs(expected[~unseen]).max())
    np.testing.assert_allclose(found[~unseen], expected[~unseen], rtol=0, atol=1e-4 * most)


@pytest.mark.parametrize(("kv", "kernels"), [("int8", "auto"), ("int8", "stock"), ("int4", "auto")])
def test_it_reads_a_quantized_cache(subject: Subject, kv: KVDtype, kernels: Any) -> None:
    if kv == "int4" and kernel_library() is None:
        pytest.skip("kernels alone read it")
    ids = random_ids(subject.bundle, 40, seed=6)
    plain = _proposed(subject.bundle, ids, 40)
    found = _proposed(subject.bundle, ids, 40, kv, kernels, hidden=plain.hidden)
    assert _apart(found.logits[0], plain.logits[0]) < {"int8": 0.1, "int4": 0.6}[kv]


def _dictate(monkeypatch: pytest.MonkeyPatch, answers: Sequence[list[int]], rate: float) -> None:
    """Replace what heads of random weights choose by ``answers``, with the probability ``rate``; they run all the
    same."""
    propose, random = CacheProposer.propose_in_batch, np.random.default_rng(3)

    def dictated(self: CacheProposer, token_ids: Sequence[int], sequences: int) -> list[int]:
        own, ids = propose(self, token_ids, sequences), list(token_ids)
        answer = next((one for one in answers if one[: len(ids)] == ids), list[int]())
        right = answer[len(ids) : len(ids) + len(own)]
        return [one if random.random() < rate else (one + 1) % 96 for one in right]

    monkeypatch.setattr(CacheProposer, "propose_in_batch", dictated)


@pytest.mark.filterwarnings("ignore:a KV cache in int4 costs:UserWarning")  # of random weights
@pytest.mark.parametrize("kv", KINDS)
@pytest.mark.parametrize("rate", [None, 0.6, 1.0])
def test_texts_are_the_models_own(
    subject: Subject, rate: float | None, kv: KVDtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kv == "int4" and kernel_library() is None:
        pytest.skip("kernels alone keep it")
    off = EngineOptions(threads=1, kv=kv, speculate="off")
    prompt = random_ids(subject.bundle, 9, seed=3)
    ways = [
        GenerationOptions(max_new_tokens=70, eos_token_id=(), do_sample=False),
        GenerationOptions(max_new_tokens=70, eos_token_id=(), do_sample=True, seed=4),
    ]
    with LLM.load(subject.bundle.path, options=off) as llm:
        assert llm.embedding_size is None
        expected = [llm.generate(prompt, way).token_ids for way in ways]
    if rate is not None:
        _dictate(monkeypatch, [[*prompt, *one] for one in expected], rate)
    on = EngineOptions(threads=1, kv=kv, speculate="mtp")
    with LLM.load(subject.bundle.path, options=on) as llm:
        for way, answer in zip(ways, expected, strict=True):
            found = llm.generate(prompt, way)
            assert found.token_ids == answer
            assert found.speculation.proposed
            assert (found.speculation.accepted > 30) == (rate == 1.0)


@ONE
def test_in_company_and_in_sessions_texts_are_as_alone(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots move while others end, and prefixes are taken from finished sequences."""
    prompts = [random_ids(subject.bundle, count, seed=count) for count in (3, 17, 8, 30)]
    off, on = (EngineOptions(threads=1, kv="int8", speculate=one) for one in ("off", "mtp"))
    lengths = (20, 40, 25, 40)
    with LLM.load(subject.bundle.path, options=off) as llm:
        alone = [
            llm.generate(prompt, max_new_tokens=length, eos_token_id=()).token_ids
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        continued = llm.generate([*prompts[1], *alone[1][:20], 5], max_new_tokens=20, eos_token_id=()).token_ids
    answers = [[*prompt, *answer] for prompt, answer in zip(prompts, alone, strict=True)]
    _dictate(monkeypatch, [*answers, [*prompts[1], *alone[1][:20], 5, *continued]], 0.8)
    with LLM.load(subject.bundle.path, options=on) as llm:
        streams = [
            llm.stream(prompt, max_new_tokens=length, eos_token_id=())
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        for stream, expected in zip(streams, alone, strict=True):
            assert list(stream)
            assert stream.result.token_ids == expected
        assert sum(stream.result.speculation.accepted for stream in streams) > 5
        again = llm.generate(prompts[3], max_new_tokens=40, eos_token_id=())  # its KV cache is still there
        assert again.token_ids == alone[3]
        session = Session()
        llm.generate(prompts[1], session=session, max_new_tokens=20, eos_token_id=())
        found = llm.generate([5], session=session, max_new_tokens=20, eos_token_id=())
        assert found.token_ids == continued
        assert found.speculation.accepted


@pytest.mark.parametrize("subject", ["gemma4_text: base"], indirect=True)
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_quantized_one_is_near(subject: Subject, scheme: Any, tmp_path: Path) -> None:
    """With the same hidden states, for random models are far from their quantized ones."""
    options = ExportOptions(scheme=scheme, draft_head=str(subject.assistant))
    bundle = export(str(subject.model), tmp_path / "bundle", options)[0]
    ids = random_ids(bundle, 40, seed=6)
    plain = _proposed(subject.bundle, ids, 40)
    found = _proposed(bundle, ids, 40, hidden=plain.hidden)
    assert _apart(found.logits[0], plain.logits[0]) < {"int8": 0.15, "int4": 0.8}[scheme]


def _changed(
    subject: Subject, folder: Path, config: Mapping[str, Any], text: Mapping[str, Any], tensors: Mapping[str, Any]
) -> str:
    """The assistant with other settings and tensors; None leaves one out."""
    folder.mkdir()
    kept = {name: one.read() for name, one in open_safetensors(subject.assistant / "model.safetensors").items()}
    changed = {name: one for name, one in {**kept, **tensors}.items() if one is not None}
    write_safetensors(folder / "model.safetensors", changed)
    own = subject.config
    whole = {**own, **config, "text_config": {**own["text_config"], **text}}
    (folder / "config.json").write_text(json.dumps(whole), "utf-8")
    return str(folder)


_ALL_FULL = {"layer_types": ["full_attention"] * 4}
_ORDERING = "masked_embedding.token_ordering"


@ONE
@pytest.mark.parametrize(
    ("config", "text", "tensors", "said"),
    [
        ({"backbone_hidden_size": 128}, {}, {}, r"its backbone_hidden_size is 128, and the model's 64"),
        ({}, {"vocab_size": 48}, {}, r"its vocab_size is 48, and the model's 96"),
        ({}, {"head_dim": 32}, {}, r"its layer 0 of a sliding window has head size, key heads and window 32, 1 and 12"),
        (
            {},
            {"global_head_dim": 16, "per_layer_config": None},
            {},
            r"its layer 3 of full attention has head size and key heads 16, 1, and",
        ),
        ({}, {"num_key_value_heads": 4}, {}, r"key heads and window 16, 4 and 12, and the model's 16, 1 and 12"),
        ({}, {"sliding_window": 16}, {}, r"window 16, 1 and 16, and the model's 16, 1 and 12"),
        ({}, {"num_kv_shared_layers": 2}, {}, r"num_kv_shared_layers = 2: all layers of an assistant share"),
        ({}, {"hidden_size_per_layer_input": 8}, {}, r"experts or embeddings of layers is not read"),
        ({"num_centroids": 13}, {}, {}, r"num_centroids = 13: it must divide vocab_size = 96"),
        ({"drafts_in_parallel": True}, {}, {}, r"drafts_in_parallel = True: not understood"),
        ({}, {}, {_ORDERING: None}, r"token_ordering: missing, which says the ids of each cluster"),
        ({}, {}, {_ORDERING: np.zeros(96, np.int64)}, r"token_ordering: ids of the model expected, each once"),
        ({}, {}, {"pre_projection.weight": None}, r"pre_projection\.weight: missing"),
        ({"use_ordered_embeddings": False}, {}, {}, r"masked_embedding.*: not a tensor of this architecture"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    subject: Subject,
    config: Mapping[str, Any],
    text: Mapping[str, Any],
    tensors: Mapping[str, Any],
    said: str,
    tmp_path: Path,
) -> None:
    assistant = _changed(subject, tmp_path / "assistant", config, text, tensors)
    with pytest.raises(EdgegenError, match=said):
        export(str(subject.model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=assistant))


@ONE
def test_other_models_are_refused(subject: Subject, tmp_path: Path) -> None:
    llama = next(one for one in CASES if str(one) == "llama: base")
    model = checkpoint_of(llama, tmp_path / "model", oracle=4)
    with pytest.raises(EdgegenError, match=r"is an assistant of Gemma 4, and the model is a llama$"):
        export(str(model), tmp_path / "bundle", ExportOptions(scheme="fp32", draft_head=str(subject.assistant)))


@ONE
def test_where_the_context_is_within_the_window_layers_are_told_apart(subject: Subject, tmp_path: Path) -> None:
    options = ExportOptions(scheme="fp32", draft_head=str(subject.assistant), max_context=12)
    bundle = export(str(subject.model), tmp_path / "bundle", options)[0]
    ids = random_ids(bundle, 11)
    assert _proposed(bundle, ids, 11).ids == _proposed(subject.bundle, ids, 11).ids
