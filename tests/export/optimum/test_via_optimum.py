"""--via optimum: architectures that edgegen has no family for, against transformers; and what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import CheckpointError, ExportError, TensorError, UnsupportedModelError, UsageError
from edgegen.llm import LLM
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.source.optimum.model_source import TracedModel
from edgegen_export.source.optimum.trace import DEFAULT_CONTEXT, check_traceable, context_of
from edgegen_export.source.optimum.traced_graph import TracedGraph
from tests.export.bundles import Listener, decoded, prefilled, random_ids, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.oracle import Oracle, edit_json, import_transformers, write_random, write_random_gpt2
from tests.root import ROOT
from tests.runtime.models import VOCAB_SIZE, byte_tokenizer
from tests.systems import needs_posix
from tests.toy_decoder import POSITIONS, VOCABULARY, optimum_graph, toy_logits, toy_weights, write_model

pytestmark = [pytest.mark.release, pytest.mark.parity, pytest.mark.usefixtures("whole_parity")]

TOLERANCE = 1e-3
"""Largest allowed difference of any float32 logit."""

LENGTH = 96

IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
LLAMA_LIKE: dict[str, Any] = IDS | {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "codegen": IDS | {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": LENGTH, "rotary_dim": 8},
    "mpt": {"n_layers": 2, "d_model": 64, "n_heads": 4, "max_seq_len": LENGTH, "expansion_ratio": 2},
    "nemotron": LLAMA_LIKE,
    "helium": LLAMA_LIKE | {"head_dim": 16},
}
"""Rotary and parallel; ALiBi; no position ids, LayerNorm plus one; interleaved rotary. No family of edgegen's."""


@pytest.fixture(scope="session")
def optimum() -> None:
    """Skips where a trace cannot be made."""
    import_transformers()
    pytest.importorskip("optimum.exporters.onnx", reason="optimum makes the traces, and it is not installed")


def write_checkpoint(folder: Path, model_type: str, **changes: Any) -> Path:
    settings = ARCHITECTURES.get(model_type, LLAMA_LIKE) | {"vocab_size": VOCAB_SIZE} | changes
    return write_random(folder, model_type, settings, seed=3)


class Traced:
    """One architecture: its checkpoint, its bundles, and what transformers makes of it."""

    def __init__(self, folder: Path, model_type: str) -> None:
        self.checkpoint = write_checkpoint(folder / model_type, model_type)
        byte_tokenizer(self.checkpoint / "tokenizer.json")
        self.listener = Listener()
        self.bundles = {scheme: self._export(folder / scheme, scheme) for scheme in ("fp32", "int8")}
        self._oracle = Oracle(self.checkpoint)

    def _export(self, target: Path, scheme: Scheme) -> Bundle:
        bundle, self.report = export(
            str(self.checkpoint), target, ExportOptions(scheme=scheme, via="optimum"), progress=self.listener
        )
        return bundle

    def logits(self, ids: list[int]) -> Any:
        return self._oracle.logits(np.array([ids]))[0]

    def greedy(self, ids: list[int], count: int) -> list[int]:
        return self._oracle.greedy([ids], count)[0]


@pytest.fixture(scope="module", params=ARCHITECTURES.keys())
def traced(request: pytest.FixtureRequest, optimum: None, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return Traced(tmp_path_factory.mktemp("traced"), request.param)


@pytest.mark.parametrize("sessions", ["one", "two"])
def test_fp32_gives_the_logits_of_transformers_however_it_is_cut(traced: Traced, sessions: Any) -> None:
    bundle = traced.bundles["fp32"]
    runner = runner_of(bundle, sessions)
    ids = random_ids(bundle, LENGTH, seed=1)
    expected = traced.logits(ids)

    def differ(found: Any, wanted: Any) -> float:
        return float(np.abs(found - wanted).max())

    assert differ(decoded(runner, runner.new_cache(), ids), expected) <= TOLERANCE
    for chunk in (1, 7, LENGTH):
        ends = [min(at + chunk, LENGTH) - 1 for at in range(0, LENGTH, chunk)]
        assert differ(prefilled(runner, runner.new_cache(), ids, chunk), expected[ends]) <= TOLERANCE
    cache = runner.new_cache()
    prefilled(runner, cache, ids[:40], 16)
    singles = np.concatenate([decoded(runner, cache, [token]) for token in ids[40:]])
    assert differ(singles, expected[40:]) <= TOLERANCE


def test_greedy_ids_are_those_of_transformers(traced: Traced) -> None:
    llm = LLM.load(traced.bundles["fp32"].path)
    for length, count in ((9, 64), (1, 12), (80, 12)):
        ids = random_ids(traced.bundles["fp32"], length, seed=length)
        found = llm.generate(ids, do_sample=False, max_new_tokens=count, eos_token_id=[])
        assert list(found.token_ids) == traced.greedy(ids, count)


def test_int8_is_near_and_small(traced: Traced) -> None:
    fp32, int8 = traced.bundles["fp32"], traced.bundles["int8"]
    size = {scheme: bundle.manifest.files["weights.data"].size for scheme, bundle in traced.bundles.items()}
    assert size["int8"] < 0.5 * size["fp32"]  # page-aligned: small matrices do not shrink to a quarter
    assert int8.variant.linear == "matmul_nbits"
    assert fp32.variant.linear == "matmul"
    ids = random_ids(int8, 60, seed=4)
    runner = runner_of(int8)
    found, expected = decoded(runner, runner.new_cache(), ids), traced.logits(ids)
    assert np.abs(found - expected).mean() < 0.03 * np.abs(expected).max()
    assert traced.report.preferred.top1_agreement > 0.75  # random weights magnify what rounding does
    assert 1e-4 < traced.report.preferred.mean_kl < 0.1


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_the_bundle_is_whole_and_streams(traced: Traced, scheme: Scheme) -> None:
    bundle = traced.bundles[scheme]
    bundle.verify()
    names = {path.name for path in bundle.content.iterdir()}
    assert names == set(bundle.manifest.files)  # nothing of the trace is left
    model = bundle.manifest.model
    assert (model.max_context, model.vocab_size, model.hidden_size, model.num_layers) == (LENGTH, VOCAB_SIZE, 64, 2)
    assert model.family == json.loads((traced.checkpoint / "config.json").read_text())["model_type"]
    assert bundle.variant.kv.kind == "concat"
    assert {"optimum-onnx", "torch", "transformers"} <= bundle.manifest.provenance.keys()
    with LLM.load(bundle.path).stream("Once upon", max_new_tokens=8, seed=1, eos_token_id=[]) as stream:
        chunks = list(stream)
    assert sum(len(chunk.token_ids) for chunk in chunks) == 8
    assert chunks[-1].finish_reason == "length"


def test_a_batch_gets_what_each_prompt_gets_alone(traced: Traced) -> None:
    llm = LLM.load(traced.bundles["int8"].path)
    prompts = ["a", "Once upon a time", "the"]
    alone = [llm.generate(prompt, max_new_tokens=6, do_sample=False).token_ids for prompt in prompts]
    assert [found.token_ids for found in llm.generate(prompts, max_new_tokens=6, do_sample=False)] == alone


def test_a_family_of_edgegens_can_be_traced_too(optimum: None, tmp_path: Path) -> None:
    folder = write_random_gpt2(tmp_path / "gpt2")
    blocks, _ = export(str(folder), tmp_path / "blocks", ExportOptions(scheme="fp32"))
    traced, _ = export(str(folder), tmp_path / "traced", ExportOptions(scheme="fp32", via="optimum", max_context=40))
    assert traced.manifest.model.max_context == 40
    ids = random_ids(blocks, 40)
    one, other = (runner_of(bundle) for bundle in (blocks, traced))
    np.testing.assert_allclose(
        decoded(one, one.new_cache(), ids), decoded(other, other.new_cache(), ids), rtol=0, atol=TOLERANCE
    )
    sizes = [bundle.manifest.files["weights.data"].size for bundle in (blocks, traced)]
    assert sizes[1] < 1.2 * sizes[0]  # the tied head is stored once


def test_int8_costs_what_it_costs_edgegens_own_graphs(optimum: None, test_data: Path, tmp_path: Path) -> None:
    folder = test_data / "models" / "gpt2-stories-0.9m"
    _, own = export(str(folder), tmp_path / "own", ExportOptions(via="edgegen"))
    _, traced = export(str(folder), tmp_path / "traced", ExportOptions(via="optimum"))
    assert traced.perplexity_reference == pytest.approx(own.perplexity_reference, rel=1e-4)
    assert traced.preferred.mean_kl < 1.5 * own.preferred.mean_kl
    assert abs(traced.preferred.perplexity_change) < 0.005


# What is refused.


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "mamba"}, "optimum does not trace model_type 'mamba'"),
        ({"model_type": "codegeN"}, "'codegeN' (did you mean 'codegen'?)"),
        ({}, "optimum does not trace model_type None"),
        ({"model_type": "t5"}, "it does trace: arcee, "),
        (
            {"model_type": "mpt", "architectures": ["MptForTokenClassification"]},
            "it is a MptForTokenClassification, and not a MptForCausalLM",
        ),
        ({"model_type": "bart", "is_encoder_decoder": True}, "it is an encoder and a decoder, not a decoder only"),
        ({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, "it is already quantized"),
    ],
)
def test_what_is_no_decoder_for_optimum_is_refused_by_its_config(
    optimum: None, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        check_traceable(config)
    assert said in str(caught.value)


def test_tensors_that_do_not_fit_are_refused_and_leave_nothing(optimum: None, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", "codegen")
    tensors = {name: tensor.read().copy() for name, tensor in open_safetensors(folder / "model.safetensors").items()}
    tensors["extra.weight"] = tensors.pop("transformer.h.0.mlp.fc_in.bias")
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(TensorError) as caught:
        export(str(folder), tmp_path / "bundle", ExportOptions(via="optimum"))
    assert "transformer.h.0.mlp.fc_in.bias: missing" in str(caught.value)
    assert "extra.weight: not a tensor of this architecture" in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_a_config_that_transformers_cannot_use_is_refused_in_one_sentence(optimum: None, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", "codegen")
    edit_json(folder / "config.json", n_head=7)
    with pytest.raises(CheckpointError) as caught:
        export(str(folder), tmp_path / "bundle", ExportOptions(via="optimum"))
    assert str(caught.value).startswith("transformers cannot load this model: ")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_a_gguf_file_is_not_traced(optimum: None, test_data: Path, tmp_path: Path) -> None:
    (gguf,) = (test_data / "models" / "stories260K").glob("*.gguf")
    with pytest.raises(UsageError, match="is a GGUF file, which optimum does not trace"):
        export(str(gguf), tmp_path / "bundle", ExportOptions(via="optimum"))
    assert not (tmp_path / "bundle").exists()


def test_an_adapter_is_not_left_out_in_silence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave --via optimum or --adapter out"):
        export("any", tmp_path / "bundle", ExportOptions(via="optimum", adapter="another"))


def run_python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join([str(ROOT), str(ROOT / "export"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        env={key: value for key, value in os.environ.items() if not key.endswith("_OFFLINE")} | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


WITHOUT_OPTIMUM = """
import sys
sys.modules["optimum"] = None
from edgegen.cli import main
main(["export", sys.argv[1], "-o", sys.argv[2], "--via", "optimum"])
"""


def test_without_optimum_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "codegen"}')
    write_safetensors(folder / "model.safetensors", {"x": np.zeros(1, np.float32)})
    done = run_python(WITHOUT_OPTIMUM, folder, tmp_path / "bundle")
    assert done.returncode == 1
    assert done.stderr.startswith("edgegen: error: tracing needs optimum and torch (")
    assert done.stderr.endswith('): run `pip install "edgegen[optimum]"`.\n')
    assert not (tmp_path / "bundle").exists()


# Killed while the trace is written; and nothing is sent or fetched over the network.
KILL_AND_LISTEN = """
import os, signal, sys
from pathlib import Path
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export

def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print("network:", event, args, flush=True)
    if event == "open" and str(args[0]).endswith("model.onnx") and sys.argv[3] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
export(sys.argv[1], Path(sys.argv[2]), ExportOptions(via="optimum"))
"""


@needs_posix("SIGKILL")
def test_an_export_killed_in_its_trace_leaves_no_bundle_and_the_next_one_makes_it(
    optimum: None, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", "mpt")
    killed = run_python(KILL_AND_LISTEN, folder, tmp_path / "bundle", "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert all(left.name.startswith(".partial-") for left in (tmp_path / "bundle").iterdir())
    done = run_python(KILL_AND_LISTEN, folder, tmp_path / "bundle", "finish")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    Bundle.open(tmp_path / "bundle").verify()


# What a trace is held against.


def test_a_trace_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    weights = toy_weights()
    path = write_model(optimum_graph(weights), tmp_path / "model.onnx")
    reference = TracedModel(path, TracedGraph.read(path).kv)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 30))
    expected = np.array([toy_logits(weights, row) for row in ids])
    np.testing.assert_allclose(reference.logits(reference.hidden([ids])[0]), expected, rtol=0, atol=1e-4)

    def model(ids: Any) -> Any:
        return toy_logits(weights, ids[0])[None]

    def branching_model(ids: Any) -> Any:
        logits = model(ids).copy()
        logits[:, 36:] += 0.2  # as if it did something else from a length on that no trace has seen
        return logits

    for context in (1, 24, POSITIONS):
        reference.check(model, VOCABULARY, context)
    reference.check(branching_model, VOCABULARY, 36)
    with pytest.raises(ExportError, match=r"something else than the model it was traced of: logits differ by 0\.2"):
        reference.check(branching_model, VOCABULARY, POSITIONS)
    reference.check(lambda ids: model(ids) * np.nan, VOCABULARY, POSITIONS)  # the comparison will say so


@pytest.mark.parametrize(
    ("config", "context", "said"),
    [
        ({"max_position_embeddings": 77}, 77, None),
        ({"n_positions": 78}, 78, None),
        ({"max_seq_len": 79}, 79, None),
        ({"max_position_embeddings": None, "seq_length": 80}, 80, None),
        ({"max_position_embeddings": 0}, DEFAULT_CONTEXT, f"{DEFAULT_CONTEXT} are assumed"),
        ({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 64, None),
        (
            {
                "max_position_embeddings": 64,
                "rope_scaling": {"type": "longrope"},
                "original_max_position_embeddings": 16,
            },
            16,
            "takes 16 of 64 positions",
        ),
        (
            {
                "max_position_embeddings": 64,
                "rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 32},
            },
            32,
            "takes 32 of 64 positions",
        ),
    ],
)
def test_the_context_of_a_trace(config: dict[str, Any], context: int, said: str | None) -> None:
    found, warning = context_of(SimpleNamespace(**config))
    assert found == context
    assert (warning is None) == (said is None)
    assert (said or "") in (warning or "")
    assert context_of(SimpleNamespace(**config), 8) == (8, None)


def test_a_context_that_the_model_does_not_take_is_refused() -> None:
    known, unknown = SimpleNamespace(max_position_embeddings=64), SimpleNamespace()
    assert context_of(unknown, 100_000) == (100_000, None)
    with pytest.raises(UsageError, match="max_context: this model can be traced for 1 to 64 positions, not 65"):
        context_of(known, 65)
    for config in (known, unknown):
        with pytest.raises(UsageError, match="not 0"):
            context_of(config, 0)


def test_weights_that_stay_floats_are_mentioned(optimum: None, tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path / "checkpoint", "gpt_oss", num_local_experts=2, num_experts_per_tok=1, head_dim=16, sliding_window=8
    )
    listener = Listener()
    export(str(folder), tmp_path / "int8", ExportOptions(via="optimum"), progress=listener)
    assert any("stay 32-bit floats" in warning for warning in listener.warnings)
