"""TunedOptions: kept by bundle and machine, used for what is not given, and never trusted further than options are."""

import json
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.options.engine import EngineOptions
from edgegen.options.tuned import TunedOptions, forget_tuned, path_of
from tests.runtime.models import write_fake_bundle
from tests.runtime.system.recorded import hybrid_x86, pi_4, pi_5

TUNED = TunedOptions(3, 64, "float32")


@pytest.fixture
def bundle(tmp_path: Path, edgegen_home: Path) -> Bundle:
    return write_fake_bundle(tmp_path / "one")


def test_tuned_options_are_kept_by_machine_and_forgotten(bundle: Bundle) -> None:
    assert TunedOptions.read(bundle, pi_5()) is None
    assert TUNED.write(bundle, pi_5()) == path_of(bundle, pi_5())
    assert TunedOptions.read(bundle, pi_5()) == TUNED
    assert TunedOptions.read(bundle, pi_4()) is None
    assert forget_tuned(bundle, pi_5())
    assert not forget_tuned(bundle, pi_5())
    assert TunedOptions.read(bundle, pi_5()) is None


def test_fewer_cores_are_another_machine(bundle: Bundle) -> None:
    TUNED.write(bundle, hybrid_x86())
    assert TunedOptions.read(bundle, hybrid_x86(cpus=[0, 1])) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"threads": 0, "prefill_chunk": 64, "kv": "float32"}',
        '{"threads": 2, "prefill_chunk": "64", "kv": "float32"}',
        '{"threads": 2, "prefill_chunk": 64}',
        '{"threads": 2, "prefill_chunk": 64, "kv": "int8"}',
        '{"threads": 2, "prefill_chunk": 64, "kv": "float32", "more": 1}',
        "[" * 100_000,
    ],
    ids=["empty", "list", "null", "no threads", "text", "missing", "no such variant", "unknown", "deep"],
)
def test_what_is_broken_counts_as_nothing(bundle: Bundle, text: str) -> None:
    path = path_of(bundle)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert TunedOptions.read(bundle) is None
    path.write_text(json.dumps({"threads": 2, "prefill_chunk": 64, "kv": "float32"}))
    assert TunedOptions.read(bundle) == TunedOptions(2, 64, "float32")


def test_tuned_options_fill_in_what_is_not_given() -> None:
    assert TUNED.applied(EngineOptions(), set()) == EngineOptions(threads=3, prefill_chunk=64, kv="float32")
    given = EngineOptions(threads=1, max_batch_size=2)
    assert TUNED.applied(given, {"threads", "max_batch_size"}) == EngineOptions(
        threads=1, max_batch_size=2, prefill_chunk=64, kv="float32"
    )
    assert TUNED.applied(EngineOptions(), set(), keep_kv=True).kv is None
    stock = EngineOptions(kernels="stock")
    assert TUNED.applied(stock, {"kernels"}) == stock
