"""Multi-token prediction heads: the graph computes what the published formulas say, and texts stay the model's own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.studies.mtp import opened
from edgegen import LLM, EngineOptions, GenerationOptions, Session
from edgegen.bundle.bundle import Bundle
from edgegen.model.loading import open_runner
from edgegen.options.speculation import LEAST_READ
from edgegen.speculation.mtp_head import open_mtp_head
from edgegen.speculation.sources import Speculate
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.decoded_shapes import decoded_shapes
from tests.export.bundles import Listener, export_to
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.mtp_heads import (
    HEADS,
    Head,
    ReferenceHead,
    assert_head_computes,
    head_runner,
    run_head,
    write_with_head,
)


@dataclass(frozen=True)
class Subject:
    """A checkpoint with a head, the head in torch, and the bundle in float32."""

    head: Head
    checkpoint: Path
    reference: ReferenceHead
    bundle: Bundle


@pytest.fixture(scope="module", params=HEADS, ids=str)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    head, folder = request.param, tmp_path_factory.mktemp("mtp")
    reference = write_with_head(head, folder / "checkpoint")
    return Subject(head, folder / "checkpoint", reference, export_to(folder / "checkpoint", folder / "bundle"))


def some_ids(bundle: Bundle, count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, bundle.manifest.model.vocab_size, count).tolist()


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_the_head_computes_what_the_formulas_say(subject: Subject, chunk: int) -> None:
    ids = some_ids(subject.bundle, 17)
    hidden = subject.reference.hidden(np.array(ids))
    expected = subject.reference.run(np.array(ids[1:]), hidden[:-1])
    assert_head_computes(subject.bundle, ids[1:], hidden, expected, chunk)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_quantized_head_is_near(subject: Subject, scheme: Any, tmp_path: Path) -> None:
    """Smoothing moves channels from the final norm into the head, which this head's norm follows."""
    bundle = export(str(subject.checkpoint), tmp_path / "bundle", ExportOptions(scheme=scheme))[0]
    ids = some_ids(bundle, 17)
    hidden = subject.reference.hidden(np.array(ids))
    expected, expected_hidden = subject.reference.run(np.array(ids[1:]), hidden[:-1])
    runner = head_runner(bundle)
    logits, found = run_head(runner, ids[1:], hidden[:-1])
    most = {"int8": 0.1, "int4": 0.6}[scheme]
    assert np.std(logits - expected[-1]) < most * np.std(expected[-1])
    assert np.std(found - expected_hidden) < most * np.std(expected_hidden)


def test_texts_are_the_models_own(subject: Subject) -> None:
    prompt, answers = some_ids(subject.bundle, 9, seed=3), list[list[Sequence[int]]]()
    choices: tuple[Speculate, ...] = ("off", "mtp")
    for speculate in choices:
        with LLM.load(subject.bundle.path, options=EngineOptions(threads=1, speculate=speculate)) as llm:
            results = [llm.generate(prompt, max_new_tokens=60), llm.generate(prompt, max_new_tokens=60, seed=2)]
            results.append(llm.generate(prompt, max_new_tokens=60, do_sample=True, seed=2))
            answers.append([one.token_ids for one in results])
            assert any(one.speculation.proposed for one in results) == (speculate == "mtp")
    assert answers[0] == answers[1]


def test_without_it_nothing_else_changes(subject: Subject, tmp_path: Path) -> None:
    bundle = export(str(subject.checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp32", mtp=False))[0]
    assert bundle.manifest.mtp is None
    assert bundle.variant.hidden_states is None
    assert "mtp.onnx" not in bundle.manifest.files
    assert bundle.manifest.model == subject.bundle.manifest.model


def test_a_head_that_does_not_fit_is_left_out_and_named(subject: Subject, tmp_path: Path) -> None:
    tensors = {name: one.read() for name, one in open_safetensors(subject.checkpoint / "model.safetensors").items()}
    name = subject.head.names[0].replace("{n}", str(subject.bundle.manifest.model.num_layers))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {k: v for k, v in tensors.items() if k != f"{name}.weight"})
    (folder / "config.json").write_bytes((subject.checkpoint / "config.json").read_bytes())
    said = Listener()
    bundle = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=said)[0]
    assert bundle.manifest.mtp is None
    [warning] = [one for one in said.warnings if "multi-token" in one]
    assert "its multi-token prediction head is left out" in warning
    assert "draft_embed_norm.weight: missing" in warning


def test_an_embedding_of_its_own_is_named(subject: Subject, tmp_path: Path) -> None:
    if not subject.head.repeats:
        pytest.skip("these checkpoints have none")
    tensors = {name: one.read() for name, one in open_safetensors(subject.checkpoint / "model.safetensors").items()}
    name = f"{subject.head.repeats[1]}.weight".replace("{n}", str(subject.bundle.manifest.model.num_layers))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {**tensors, name: 2 * tensors[name]})
    (folder / "config.json").write_bytes((subject.checkpoint / "config.json").read_bytes())
    said = Listener()
    assert export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=said)[0].manifest.mtp is None
    assert any("shared_head.head.weight: not the model's own" in one for one in said.warnings)


@pytest.mark.parametrize("kv", ["float32", "int8"])
@pytest.mark.parametrize("rate", [0.0, 0.6, 1.0])
def test_texts_are_the_models_own_at_any_acceptance_rate(subject: Subject, rate: float, kv: Any) -> None:
    """The head's choice is dictated: a random one is never right."""
    off = EngineOptions(threads=1, kv=kv, speculate="off")
    prompt = some_ids(subject.bundle, 9, seed=3)
    with LLM.load(subject.bundle.path, options=off) as llm:
        expected = llm.generate(prompt, max_new_tokens=70, eos_token_id=()).token_ids
        drawn = llm.generate(prompt, max_new_tokens=70, eos_token_id=(), do_sample=True, seed=4).token_ids
    greedy = GenerationOptions(max_new_tokens=70, eos_token_id=(), do_sample=False)
    for answer, options in ((expected, greedy), (drawn, replace(greedy, do_sample=True, seed=4))):
        with opened(subject.bundle, replace(off, speculate="mtp"), [[*prompt, *answer]], rate) as llm:
            found = llm.generate(prompt, options)
        assert found.token_ids == answer
        assert found.speculation.proposed
        assert (found.speculation.accepted > 30) == (rate == 1.0)


def test_in_company_and_in_sessions_texts_are_as_alone(subject: Subject) -> None:
    prompts = [some_ids(subject.bundle, count, seed=count) for count in (3, 17, 8, 30)]
    off, on = (EngineOptions(threads=1, speculate="off"), EngineOptions(threads=1, speculate="mtp"))
    with LLM.load(subject.bundle.path, options=off) as llm:
        alone = [llm.generate(prompt, max_new_tokens=40, eos_token_id=()).token_ids for prompt in prompts]
        continued = llm.generate([*prompts[1], *alone[1][:20], 5], max_new_tokens=20, eos_token_id=()).token_ids
    with LLM.load(subject.bundle.path, options=on) as llm:
        streams = [llm.stream(prompt, max_new_tokens=40, eos_token_id=()) for prompt in prompts]
        for stream, expected in zip(streams, alone, strict=True):
            assert list(stream)
            assert stream.result.token_ids == expected
        again = llm.generate(prompts[3], max_new_tokens=40, eos_token_id=())  # its KV cache is still there
        assert again.token_ids == alone[3]
        session = Session()
        llm.generate(prompts[1], session=session, max_new_tokens=20, eos_token_id=())
        assert llm.generate([5], session=session, max_new_tokens=20, eos_token_id=()).token_ids == continued


WAYS: tuple[dict[str, Any], ...] = (
    {"max_new_tokens": 40},
    {"max_new_tokens": 25, "do_sample": True, "seed": 3},
    {"max_new_tokens": 30, "repetition_penalty": 1.3},
    {"max_new_tokens": 40, "stop_token_ids": tuple(range(0, 96, 12))},
    {"max_new_tokens": 30, "do_sample": True, "seed": 4, "temperature": 1.5, "top_k": 20},
)


def test_sequences_of_a_batch_speculate_and_are_as_alone(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """With choices of their own; one ends, and others join then."""
    off = EngineOptions(threads=1, kv="int8", speculate="off")
    requests: list[tuple[list[int], dict[str, Any]]] = [
        (some_ids(subject.bundle, 5 + 3 * n, seed=n), {"eos_token_id": (), **way}) for n, way in enumerate(WAYS)
    ]
    with LLM.load(subject.bundle.path, options=off) as llm:
        alone = [llm.generate(prompt, **options).token_ids for prompt, options in requests]
    answers = [[*prompt, *answer] for (prompt, _), answer in zip(requests, alone, strict=True)]
    shapes = decoded_shapes(monkeypatch)
    with opened(subject.bundle, replace(off, speculate="mtp"), answers, 0.8, cost=0.05) as llm:
        streams = [llm.stream(prompt, **options) for prompt, options in requests[:3]]
        assert list(streams[1])
        streams += [llm.stream(prompt, **options) for prompt, options in requests[3:]]
        assert all(list(stream) for stream in (streams[0], *streams[2:]))
        assert [stream.result.token_ids for stream in streams] == alone
    together = {shape for shape in shapes if min(shape) > 1}
    runner = open_runner(subject.bundle, off)
    assert bool(together) == runner.verifies_batches
    assert all(rows <= 4 and tokens <= 5 for rows, tokens in together)
    runner.close()


@pytest.mark.parametrize("kv", ["int8", "float32"])
@pytest.mark.parametrize(("speculate", "least"), [("auto", 0), ("auto", LEAST_READ), ("mtp", LEAST_READ)])
def test_where_it_would_not_pay_or_bits_would_differ_it_has_to_be_asked_for(
    subject: Subject, speculate: Any, least: int, kv: Any
) -> None:
    options = EngineOptions(threads=1, kv=kv, kernels="stock", speculate=speculate)
    runner = open_runner(subject.bundle, options)
    exact = runner.chunk_invariance == "any"
    assert exact == (kv == "int8" and "moe" not in str(subject.head) and "deepseek" not in str(subject.head))
    head = open_mtp_head(subject.bundle, options, runner, least)
    assert (head is not None) == (speculate == "mtp" or (exact and not least))
    for one in (runner, *([head] if head else [])):
        one.close()
