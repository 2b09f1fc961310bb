"""Sliding window layers: bit-exact results and flat memory far beyond the window, against a full KV cache."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.manifest import KVSpec
from edgegen.model.interfaces import Runner
from edgegen.model.kv_cache import KVCache
from edgegen.model.sliding_window import BEHIND, CHUNK
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import decoded, runner_of
from tests.families.cases import Case, cases_also
from tests.families.harness import checkpoint_of, margins, oracle_of, tokens

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]

WINDOWED = cases_also("windows")
"""A case of every family that can have windows."""

WINDOW, CONTEXT = 100, 768

FAR = 1e-2
"""Largest allowed difference of any float32 logit, hundreds of tokens on: each rounding is read by all that follow."""


WIDE = {
    "hidden_size": 256,
    "head_dim": 256,
    **dict.fromkeys(("num_heads", "num_attention_heads", "num_key_value_heads"), 1),
    **dict.fromkeys(("max_position_embeddings", "original_max_position_embeddings"), CONTEXT),
    **dict.fromkeys(("sliding_window", "window_size"), WINDOW),
    "num_experts_per_tok": 2,  # more are added up in an order of the operator's own
}
"""A head of 256 values: the attention operator takes its keys in the smallest blocks there are."""


def widened(case: Case) -> Case:
    return replace(case, config={key: WIDE.get(key, value) for key, value in case.config.items()})


def named(case: Case) -> str:
    return f"{case.family}-{case.name}"


def exported(case: Case, folder: Path, scheme: Scheme) -> Bundle:
    checkpoint = checkpoint_of(widened(case), folder / "checkpoint")
    return export(str(checkpoint), folder / "bundle", ExportOptions(scheme=scheme, fast=scheme == "int8"))[0]


class Twins:
    """A cache with windows and one that keeps everything, to which the same is done."""

    def __init__(self, runner: Runner[Any], kv: KVSpec) -> None:
        self.runner = runner
        self.windowed: KVCache = runner.new_cache()
        self.full = KVCache(kv, CONTEXT)
        self.caches = (self.windowed, self.full)
        self.rows = 0

    def admit(self, ids: list[int]) -> None:
        for cache in self.caches:
            cache.reserve(self.rows + 1, 0)
            cache.truncate(self.rows, 0)
        for at in range(0, len(ids), CHUNK):  # longer runs would make more room
            self.prefill(self.rows, ids[at : at + CHUNK])
        self.rows += 1

    def prefill(self, slot: int, ids: list[int]) -> None:
        found = self.runner.prefill(self.windowed, slot, ids).copy()
        np.testing.assert_array_equal(found, self.runner.prefill(self.full, slot, ids))

    def decode(self, ids: NDArray[np.int64], first: int) -> None:
        found = self.runner.decode(self.windowed, ids, first).copy()
        np.testing.assert_array_equal(found, self.runner.decode(self.full, ids, first))

    def truncate(self, slot: int, length: int) -> None:
        for cache in self.caches:
            cache.truncate(slot, length)

    def fork(self, source: int, target: int) -> None:
        for cache in self.caches:
            cache.fork(source, target)

    def leave(self, slot: int) -> None:
        for cache in self.caches:
            cache.compact(slot, self.rows)
        self.rows -= 1


def compare(runner: Runner[Any], kv: KVSpec, seed: int) -> None:
    """Chunks, several tokens, single ones and batches, and steps back, copies and leavers between them."""
    twins, rng, slid = Twins(runner, kv), np.random.default_rng(seed), 0

    def ids(rows: int, count: int) -> NDArray[np.int64]:
        return rng.integers(0, runner.vocab_size, (rows, count))

    for _ in range(45):
        slid = max(slid, *(int(bases.max(initial=0)) for bases in twins.windowed.bases.values()))
        lengths = twins.windowed.lengths[: twins.rows]
        if twins.rows < 3:
            twins.admit(ids(1, int(rng.integers(200, 450)))[0].tolist())
            continue
        if lengths.max() > CONTEXT - 130:
            twins.leave(int(lengths.argmax()))
            continue
        slot = int(rng.integers(twins.rows))
        match rng.choice(["prefill", "prefill", "several", "batch", "batch", "batch", "back", "fork"]):
            case "prefill":
                twins.prefill(slot, ids(1, int(rng.integers(2, 129)))[0].tolist())
            case "several":
                twins.decode(ids(1, int(rng.integers(1, 18))), slot)
            case "batch":
                for _ in range(int(rng.integers(1, 10))):
                    twins.decode(ids(twins.rows, 1), 0)
            case "back":
                twins.truncate(slot, max(1, int(lengths[slot]) - int(rng.integers(BEHIND + 1))))
            case _:
                twins.fork(slot, (slot + 1) % twins.rows)
    assert slid > WINDOW, "nothing has slid: this tests nothing"
    assert twins.windowed.nbytes < twins.full.nbytes


@pytest.mark.parametrize("case", WINDOWED, ids=named)
def test_what_the_window_has_passed_is_not_missed(case: Case, tmp_path: Path) -> None:
    """Bit for bit, though float32 heads of 256 values are not exact in chunks: both caches get the same ones."""
    bundle = exported(case, tmp_path, "fp32")
    compare(runner_of(bundle), bundle.variant.kv, seed=5)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
@pytest.mark.parametrize("kv", ["int8", "int4", "float32"])
def test_nor_with_rounded_keys_and_values(int8_bundles: dict[str, Bundle], family: str, kv: KVDtype) -> None:
    """Gemma 2 caps its scores, and the operator has other kernels for that."""
    bundle = int8_bundles[family]
    compare(runner_of(bundle, kv=kv), bundle.variant_with(kv).kv, seed=6)


@pytest.fixture(scope="module")
def int8_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    return {
        case.family: exported(case, tmp_path_factory.mktemp(case.family), "int8")
        for case in WINDOWED
        if str(case) in ("gemma2: base", "gemma3_text: base")
    }


@pytest.mark.parametrize("case", cases_also("far past windows"), ids=named)
def test_greedy_ids_are_those_of_transformers_many_windows_on(case: Case, tmp_path: Path) -> None:
    """The oracle judges prompt and ids in one pass: where it agrees with every choice so far, the next follows."""
    bundle = exported(case, tmp_path, "fp32")
    run = runner_of(bundle)
    prompt = tokens(case, 200, seed=2)
    cache: KVCache = run.new_cache()
    found = [run.prefill(cache, 0, prompt).copy()]
    while cache.lengths[0] < CONTEXT:
        found.append(decoded(run, cache, [int(found[-1].argmax())])[0])
    assert all(bases[0] > 2 * WINDOW for name, bases in cache.bases.items() if name != "full")
    ids = [int(logits.argmax()) for logits in found]
    oracle = oracle_of(case, tmp_path / "checkpoint")
    expected = oracle.logits(np.array([prompt + ids[:-1]]))[0, len(prompt) - 1 :]
    np.testing.assert_allclose(found, expected, rtol=0, atol=FAR)
    clear = margins(expected) > 2 * FAR
    assert np.count_nonzero(clear) > 0.95 * len(ids)
    assert np.array_equal(expected.argmax(axis=1)[clear], np.array(ids)[clear])
