"""Models for the runtime's tests: a small random checkpoint, and a fake one whose only memory is its KV cache."""

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import edgegen.tokenizer
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import (
    FORMAT_VERSION,
    MANIFEST_NAME,
    CacheClass,
    FileEntry,
    GraphContract,
    GraphVariant,
    HiddenStates,
    KVLayer,
    KVSpec,
    Manifest,
    MatrixFormat,
    Model,
    Phase,
    Quantization,
    Source,
)
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.llm import LLM
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.ort_session import Binding, Buffer, RunSwitch
from edgegen.options.engine import EngineOptions
from tests.byte_level import LETTER_OF_BYTE
from tests.export.checkpoint.layouts import write_gpt2
from tests.waiting import PATIENCE_S, until

VOCAB_SIZE = 260
END, D_AND_HALF_A_CHARACTER, THE, EOS = 256, 257, 258, 259
"""Ids beyond the 256 single bytes: the texts "END" and " the", "D" with the first byte of "–", and the special one."""


def byte_tokenizer(path: Path) -> Path:
    """A ``tokenizer.json`` whose first 256 ids are the bytes."""
    vocab = {letter: byte for byte, letter in LETTER_OF_BYTE.items()}
    vocab |= {"END": END, "D" + LETTER_OF_BYTE[0xE2]: D_AND_HALF_A_CHARACTER, LETTER_OF_BYTE[0x20] + "the": THE}
    tokenizer: Any = Tokenizer(models.BPE(vocab=vocab, merges=[]))  # type: ignore[arg-type]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    assert tokenizer.token_to_id("<|endoftext|>") == EOS
    path.write_text(tokenizer.to_str(), newline="\n")
    return path


def write_checkpoint(folder: Path) -> Path:
    """Random GPT-2 weights of 512 positions, with the byte tokenizer."""
    folder.mkdir(parents=True)
    tokenizer = byte_tokenizer(folder.with_suffix(".tokenizer.json"))
    return write_gpt2(
        folder, layout="original", n_positions=512, vocab_size=VOCAB_SIZE, tokenizer=tokenizer, n_layer=3, seed=4
    )


HIDDEN_SIZE = 6
"""That of the fake model's hidden states."""

FLOATS = MatrixFormat(bits=32, block_size=0, symmetric=True, accuracy_level=0)

NextId = Callable[[list[int]], int]


class FakeGraphs:
    """A pair of graphs that keep ids as keys, and find the next id by asking ``next_id`` about what is in the cache.

    Whatever is wrong with the cache (a position skipped, stale or beyond the length) changes what comes next.
    """

    def __init__(self, next_id: NextId, *, vocab_size: int = VOCAB_SIZE) -> None:
        self.next_id = next_id
        self.vocab_size = vocab_size
        self.runs: list[tuple[Phase, int]] = []
        self.logits_of_runs: list[int] = []
        self.rows = 0  # of the run under way
        self.switch = RunSwitch()
        self.order: SummingOrder = "rows"
        self.attends_batches = False
        self.pending: dict[str, tuple[int, int]] = {}
        self.before_run: Callable[[], None] = lambda: None
        self.after_run: Callable[[], None] = lambda: None
        self.before_binding: Callable[[], None] = lambda: None

    def binding(self, phase: Phase) -> Binding:
        return FakeBinding(self, phase)

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """Logits after ``ids``, which are what the cache holds."""
        logits = np.full(self.vocab_size, -9, np.float32)
        logits[self.next_id(ids)] = 9
        return logits

    def hidden(self, ids: list[int]) -> NDArray[np.float32]:
        """The hidden states after ``ids``: those of no other text."""
        return np.random.default_rng([len(ids), *ids]).normal(0, 1, HIDDEN_SIZE).astype(np.float32)


class RandomGraphs(FakeGraphs):
    """Give every text a random distribution of its own: choices branch, and any of them shows in all that follow."""

    def __init__(self, seed: int = 0, *, spread: float = 2.0, vocab_size: int = VOCAB_SIZE) -> None:
        super().__init__(digest_of, vocab_size=vocab_size)
        self.seed = seed
        self.spread = spread

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        random = np.random.default_rng([self.seed, len(ids), *ids])
        return random.normal(0, self.spread, self.vocab_size).astype(np.float32)


class FakeBinding(Binding):
    def __init__(self, graphs: FakeGraphs, phase: Phase) -> None:
        self.graphs = graphs
        self.phase: Phase = phase
        self.arrays: dict[str, Any] = {}

    def takes(self, name: str) -> bool:
        return True

    def input(self, name: str, buffer: Buffer) -> None:
        self.graphs.before_binding()
        self.arrays[name] = buffer.array

    def output(self, name: str, buffer: Buffer) -> None:
        if name.startswith("present"):  # bound in place, or not at all
            assert buffer.array is self.arrays[name.replace("present", "past")]
        self.arrays[name] = buffer.array

    def run(self) -> None:
        a, ids = self.arrays, self.arrays["input_ids"]
        rows, tokens = ids.shape
        self.graphs.rows = rows
        self.graphs.before_run()
        if self.graphs.switch.run_options.terminate:
            raise RuntimeError("the run was ended")
        assert a["total"] == a["position_ids"].max() + 1 <= a["past.key"].shape[2]
        assert (a["seqlens"] == a["position_ids"].max(axis=1)).all()
        wanted = a["logits_indices"]
        for row in range(rows):
            keys, values = a["past.key"][row, 0, :, 0], a["past.value"][row, 0, :, 0]
            keys[a["position_ids"][row]] = values[a["position_ids"][row]] = ids[row]
            for at, token in enumerate(wanted[row]):
                end = int(a["position_ids"][row, token]) + 1
                assert (keys[:end] == values[:end]).all()
                a["logits"][row, at] = self.graphs.logits(keys[:end].astype(int).tolist())
            for at in range(tokens if "hidden_states" in a else 0):
                end = int(a["position_ids"][row, at]) + 1
                a["hidden_states"][row, at] = self.graphs.hidden(keys[:end].astype(int).tolist())
        self.graphs.runs.append((self.phase, tokens))
        self.graphs.logits_of_runs.append(wanted.size)
        self.graphs.after_run()


def after_prompt(*answer: int, prompt: int = 1) -> NextId:
    """Gives ``answer`` after a prompt of ``prompt`` ids, and then zeros."""

    def next_id(ids: list[int]) -> int:
        at = len(ids) - prompt
        return answer[at] if at < len(answer) else 0

    return next_id


def digest_of(ids: list[int]) -> int:
    """A next id (never a special one) that depends on every id before it and on its place."""
    state = 17
    for token in ids:
        state = (state * 31 + token + 1) % 65521
    return state % 256


def fake_variant(*, hidden: bool = False) -> GraphVariant:
    layer = KVLayer("full", 1, 1, "past.key", "past.value", "present.key", "present.value")
    return GraphVariant(
        name="fake",
        prefill="prefill.onnx",
        decode="decode.onnx",
        weights="weights.data",
        linear="matmul",
        activation_dtype="float32",
        device="cpu",
        minimum_onnxruntime="1.23.2",
        kv=KVSpec("float32", "in_place", {"full": CacheClass(None, "seqlens", "total")}, (layer,)),
        contract=GraphContract(),
        rotary=(),
        hidden_states=HiddenStates("hidden_states", HIDDEN_SIZE) if hidden else None,
    )


def fake_runner(graphs: FakeGraphs, max_context: int = 512, *, hidden: bool = False) -> InPlaceRunner:
    return InPlaceRunner(graphs, fake_variant(hidden=hidden), graphs.vocab_size, max_context)


FAKE_REPORT = ParityReport(
    text="sample text",
    tokens=512,
    likeliest=128,
    greedy_prompts=8,
    greedy_tokens=24,
    perplexity_reference=20.0,
    variants={"fake": VariantParity(0.0004, 0.01, 0.99, 0.2, 20.02, 0.001, 0.0005, 1, 0.03, 0.0)},
    layer_errors={"fake": (0.01,)},
    weights_bytes=1000,
    bundle_bytes=2000,
)


def write_fake_bundle(
    folder: Path,
    *,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    tokenizer: bool = True,
    max_context: int = 512,
    template: str | None = None,
    hidden: bool = False,
) -> Bundle:
    """A bundle that is whole, but whose graphs are no graphs."""
    content = folder / "v1"
    content.mkdir(parents=True)
    names = ("prefill.onnx", "decode.onnx", "weights.data")
    # The message of a graph without version and nodes: nothing is wrong with it, and ONNX Runtime loads it not.
    files: dict[str, bytes] = {
        file: b"\x3a" + bytes([len(file) + 2]) + b"\x12" + bytes([len(file)]) + file.encode() for file in names
    }
    files["generation_config.json"] = json.dumps({"bos_token_id": EOS} if config is None else config).encode()
    files["parity.json"] = json.dumps(FAKE_REPORT.to_json()).encode()
    files["reference.npz"] = b"nothing of which anything is known"
    if tokenizer:
        files["tokenizer.json"] = byte_tokenizer(content / "tokenizer.json").read_bytes()
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    for file, data in files.items():
        (content / file).write_bytes(data)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        name=name or folder.name,
        folder="v1",
        source=Source("folder", "fake"),
        model=Model("gpt2", 1000, 1, 1, VOCAB_SIZE, max_context),
        quantization=Quantization("fp32", FLOATS, FLOATS),
        variants=(fake_variant(hidden=hidden),),
        tokenizer="tokenizer.json" if tokenizer else None,
        generation_config="generation_config.json",
        parity="parity.json",
        parity_reference="reference.npz",
        files={file: FileEntry(len(data), hashlib.sha256(data).hexdigest()) for file, data in files.items()},
    )
    (folder / MANIFEST_NAME).write_text(manifest.to_json(), newline="\n")
    return Bundle.open(folder)


def raw_manifest(folder: Path) -> dict[str, Any]:
    """Return the contents of ``edgegen.json`` without its own hash, so that it can be changed and written again."""
    raw: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text("utf-8"))
    del raw["sha256"]
    return raw


def fake_llm(
    folder: Path,
    graphs: FakeGraphs,
    *,
    config: Mapping[str, Any] | None = None,
    tokenizer: bool = True,
    max_context: int = 512,
    prefill_chunk: int = 8,
    template: str | None = None,
    hidden: bool = False,
    prefix_cache: int | None = 0,
) -> LLM:
    bundle = write_fake_bundle(
        folder, config=config, tokenizer=tokenizer, max_context=max_context, template=template, hidden=hidden
    )
    path = bundle.file("tokenizer.json")
    return LLM(
        bundle,
        edgegen.tokenizer.Tokenizer.from_file(path) if tokenizer else None,
        fake_runner(graphs, max_context, hidden=hidden),
        EngineOptions(prefill_chunk=prefill_chunk, prefix_cache=prefix_cache),  # 0: each request's runs can be counted
    )


def interrupt_main_thread() -> None:
    """Ctrl-C, as a terminal sends it: it wakes the main thread up."""
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)  # from every thread it is the main thread's
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class InterruptAt:
    """Something to be called in the engine's thread; at its ``left``-th call, Ctrl-C reaches the main thread.

    It returns when the main thread has been interrupted; given ``graphs``, when that has ended the run as well.
    """

    def __init__(self, left: int, graphs: FakeGraphs | None = None) -> None:
        self.left = left
        self._graphs = graphs
        self._reached = threading.Event()
        signal.signal(signal.SIGINT, self._interrupt)

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            interrupt_main_thread()
            assert self._reached.wait(PATIENCE_S)
            if self._graphs is None:
                time.sleep(0.02)
            else:
                switch = self._graphs.switch
                assert until(lambda: switch.run_options.terminate)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._reached.set()
        raise KeyboardInterrupt


class Gate:
    """Something to be called before each run: the ``at``-th waits until it is let through, or ended."""

    def __init__(self, graphs: FakeGraphs, at: int) -> None:
        self.graphs, self.left = graphs, at
        self.reached, self.opened = threading.Event(), threading.Event()
        graphs.before_run = self

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            assert until(lambda: self.opened.is_set() or self.graphs.switch.run_options.terminate)


class FailAt:
    """Something to be called, which raises ``error`` at its ``left``-th call."""

    def __init__(self, left: int, error: BaseException) -> None:
        self.left = left
        self.error = error

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


def random_ids(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, count).tolist()
