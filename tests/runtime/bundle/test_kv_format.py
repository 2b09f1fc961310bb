"""KVFormat: what a dtype of a KV cache is, is in its entry alone."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KV_FORMATS, STORED, TAKE_STORED, KVDtype
from edgegen.evaluation.parity.measure import judged_variants, open_graph
from edgegen.model.kv_snapshot import snapshot_problem
from tests.kernels.stock import needs_kernels
from tests.runtime.models import random_ids


@pytest.mark.parametrize(("kv", "saving"), [("int8", "int8 is 4x smaller"), ("int4", "int4 is 7x smaller")])
def test_each_is_smaller_than_the_one_before(kv: KVDtype, saving: str) -> None:
    assert KV_FORMATS[kv].saving == saving


def test_bundles_have_graphs_over_some() -> None:
    assert STORED == ("float32", "int8")
    assert TAKE_STORED == "take --kv int8 or --kv float32"


@needs_kernels
def test_a_new_one_is_an_entry(int8_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    name: Any = "packed"
    monkeypatch.setitem(cast(dict[str, Any], KV_FORMATS), name, replace(KV_FORMATS["int4"], name=name))
    variant, known = int8_bundle.variant_with(name), int8_bundle.variant_with("int4")
    assert (
        [one.name for one in judged_variants(int8_bundle)][-2:]
        == [known.name, variant.name]
        == ["int8-kv-int4", "int8-kv-packed"]
    )
    assert variant.kv.bytes_per_token == known.kv.bytes_per_token
    runners = [open_graph(int8_bundle, one, "decode") for one in (variant, known)]
    caches = [runner.new_cache() for runner in runners]
    ids = np.array([random_ids(40)], np.int64)
    found, expected = (runner.decode(cache, ids) for runner, cache in zip(runners, caches, strict=True))
    np.testing.assert_array_equal(found, expected)
    assert snapshot_problem(caches[0].save(0), variant.kv, variant.kv.format.array_dtype) is None
