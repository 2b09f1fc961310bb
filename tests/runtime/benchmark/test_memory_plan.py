"""plan_memory(): what gives way first as memory becomes less, what is given stays, and what does not fit is refused."""

from dataclasses import replace

import pytest

from edgegen.benchmark.memory_forecast import forecast_memory
from edgegen.benchmark.memory_plan import MemoryPlan, plan_memory
from edgegen.bundle import manifest
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KV_FORMATS
from edgegen.errors import UsageError
from edgegen.options.engine import EngineOptions
from tests.kernels.stock import needs_kernels

FLOATS = 4 * 2 * 3 * 64
"""Bytes of KV cache of a token of the tiny bundle in float32; in int8 a quarter."""

NIBBLES = 2 * 3 * 4 * (8 + 4)
"""In int4: of each of four heads 16 codes take 8 bytes, and their levels 4."""

EIGHT = EngineOptions(kv="float32", prefill_chunk=4096, kernels="stock")
"""As ``WIDE``, where int8 is the smallest KV cache."""

WIDE = EngineOptions(kv="float32", prefill_chunk=4096)
"""Activations of 4096 tokens take 13.6 MB."""


def limit_for(total: float) -> int:
    """A limit of which nine tenths are ``total``."""
    return int(total / 0.9) + 2


def bare(bundle: Bundle, options: EngineOptions, batch: int = 1) -> int:
    return forecast_memory(bundle, options, kv=0, batch=batch).total


def shape(plan: MemoryPlan) -> tuple[int, str | None, int]:
    return plan.context, plan.options.kv, plan.options.prefill_chunk


def test_with_enough_memory_nothing_changes(int8_bundle: Bundle) -> None:
    plan = plan_memory(int8_bundle, 10**9, WIDE, batch=8)
    context = int8_bundle.manifest.model.max_context
    assert shape(plan) == (context, "float32", 4096)
    assert plan.sequences == 8
    assert plan.options.kv_budget == 8 * context * FLOATS
    assert plan.forecast.total <= 0.9 * 10**9


def test_chunks_give_way_then_the_type_of_the_kv_cache_then_the_context(int8_bundle: Bundle) -> None:
    context = int8_bundle.manifest.model.max_context
    small = EngineOptions(prefill_chunk=128)
    fits = limit_for(bare(int8_bundle, small) + context * FLOATS)
    assert shape(plan_memory(int8_bundle, fits, WIDE)) == (context, "float32", 128)
    least = EngineOptions(prefill_chunk=16)
    fits = limit_for(bare(int8_bundle, least) + context * FLOATS // 4)
    assert shape(plan_memory(int8_bundle, fits, WIDE)) == (context, "int8", 16)
    stock = EngineOptions(prefill_chunk=16, kernels="stock")
    fits = limit_for(bare(int8_bundle, stock) + 128 * FLOATS // 4)
    plan = plan_memory(int8_bundle, fits, EIGHT)
    assert shape(plan) == (128, "int8", 16)
    assert plan.sequences == 1
    assert plan.options.kv_budget == pytest.approx(128 * FLOATS // 4, abs=4)


@needs_kernels
def test_an_int4_kv_cache_comes_last(int8_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    context, least = int8_bundle.manifest.model.max_context, EngineOptions(prefill_chunk=16)
    fits = limit_for(bare(int8_bundle, least) + context * NIBBLES)
    assert shape(plan_memory(int8_bundle, fits, WIDE)) == (context, "int4", 16)
    plan = plan_memory(int8_bundle, limit_for(bare(int8_bundle, least) + 128 * NIBBLES), WIDE)
    assert shape(plan) == (128, "int4", 16)
    assert plan.options.kv_budget == pytest.approx(128 * NIBBLES, abs=4)
    strict = {**KV_FORMATS, "int4": replace(KV_FORMATS["int4"], most_kl=0.0)}
    monkeypatch.setattr(manifest, "KV_FORMATS", strict)
    assert shape(plan_memory(int8_bundle, fits, WIDE))[1] == "int8"


def test_given_options_are_kept_by_the_memory_plan(int8_bundle: Bundle) -> None:
    least = EngineOptions(prefill_chunk=16)
    fits = limit_for(bare(int8_bundle, least) + 128 * FLOATS)
    assert shape(plan_memory(int8_bundle, fits, WIDE, given=["kv"])) == (128, "float32", 16)
    with pytest.raises(UsageError, match="needs at least"):
        plan_memory(int8_bundle, fits, WIDE, given=["prefill_chunk"])
    budget = EngineOptions(kv_budget=128 * FLOATS // 4, kv="int8")
    assert plan_memory(int8_bundle, 10**9, budget).context == 128


def test_a_server_keeps_room_for_itself_and_for_prefixes(int8_bundle: Bundle) -> None:
    options = EngineOptions()
    context = int8_bundle.manifest.model.max_context
    of_one = context * FLOATS // 4
    limit = limit_for(bare(int8_bundle, options, 4) + 30_000_000 + 3 * of_one)
    plan = plan_memory(int8_bundle, limit, options, batch=4, beside=30_000_000, prefixes=0.5)
    assert plan.options.kv_budget == pytest.approx(2 * of_one, abs=4)
    assert plan.options.prefix_cache == pytest.approx(of_one, abs=4)
    assert plan.sequences == 2
    assert plan.forecast.python == 90_000_000
    assert plan.forecast.total <= 0.9 * limit


def test_what_does_not_fit_is_refused_with_numbers_that_do(int8_bundle: Bundle) -> None:
    with pytest.raises(UsageError) as refused:
        plan_memory(int8_bundle, 50_000_000, EngineOptions())
    said = str(refused.value)
    assert "--max-memory allows 50 MB" in said
    assert "60 MB Python and ONNX Runtime" in said
    needed = int(said.partition("needs at least ")[2].split()[0])
    assert plan_memory(int8_bundle, (needed + 1) * 10**6, EngineOptions()).context >= 64


def test_the_memory_plan_is_told_in_one_line(int8_bundle: Bundle) -> None:
    text = str(plan_memory(int8_bundle, 10**9, EngineOptions(), batch=2))
    assert text.startswith("about 8")
    assert f"context of {int8_bundle.manifest.model.max_context} tokens for 2 sequences at once" in text
    assert text.endswith("int8 KV cache, prefill chunks of 256")
