"""A bit budget is never exceeded, and buys first what saves most."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import UsageError
from edgegen_export.calibration.bit_budget import BitBudget, ladder, narrow_ladder
from edgegen_export.calibration.calibrate import Calibrated, calibrate
from edgegen_export.calibration.layer_walk import layer_matrices
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.fused import fused_name, fused_weight, parts
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.quantize.allocation import Rung, upgraded_within
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import rounded_plainly, stored_bits
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, FLOATS, FOUR_BITS
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import decoded
from tests.export.calibration.test_calibrate import IDS, PLAIN
from tests.export.graph.test_blocks import Weights, runner_over
from tests.export.quantize.test_smoothing import random_tensors
from tests.kernels.material import needs_library

SHAPES = {
    "embed": (100, 64),
    "layers.0.attn.o": (64, 64),
    "layers.0.mlp.down": (64, 160),
    "layers.1.mlp.down": (64, 40),
}
ALLOCATED = list(SHAPES)
WEIGHTS = sum(n * k for n, k in SHAPES.values())
RECIPE = CALIBRATED["int4"]
PLAIN_FOUR, EIGHT = WITHOUT_ZEROS = ladder(EIGHT_BITS, zeros=False)
ZEROS, _ = WITH_ZEROS = ladder(EIGHT_BITS, zeros=True)


def budget(per_weight: float | None, recipe: Quantization = RECIPE, allocated: Sequence[str] = ALLOCATED) -> BitBudget:
    tensors = {f"{name}.weight": LazyTensor.from_array(np.zeros(shape, np.float32)) for name, shape in SHAPES.items()}
    return BitBudget(tensors, list(allocated), recipe, per_weight)


def bits(formats: dict[str, MatrixFormat]) -> int:
    return sum(stored_bits(SHAPES[name], form) for name, form in formats.items())


LEAST_BITS = bits(dict.fromkeys(ALLOCATED, PLAIN_FOUR))
LEAST = LEAST_BITS / WEIGHTS


@given(
    per_weight=st.floats(LEAST, 10),
    costs=st.lists(st.integers(0, 1000), min_size=2 * len(SHAPES), max_size=2 * len(SHAPES)),
)
def test_a_budget_is_never_exceeded_and_buys_the_best_there_is(per_weight: float, costs: list[int]) -> None:
    own = budget(per_weight)
    ladders = {name: own.ladder_of(name, EIGHT_BITS) for name in ALLOCATED}
    changes = [(name, form) for name in ALLOCATED for form in (PLAIN_FOUR, ZEROS)]
    known = {change: cost / 1000 for change, cost in zip(changes, costs, strict=True)}
    formats = own.spent(ladders, known, RECIPE)
    assert set(formats) == set(ALLOCATED)
    assert bits(formats) <= per_weight * WEIGHTS + 0.5
    # The best of all ways, but for what is lost by giving bits out in pieces.
    every = [dict(zip(ALLOCATED, forms, strict=True)) for forms in product(*ladders.values())]
    least = min(map(bits, every))
    cheap_enough = [each for each in every if bits(each) <= least + 0.999 * (per_weight * WEIGHTS - least)]
    left = [sum(known.get(change, 0.0) for change in each.items()) for each in (formats, *cheap_enough)]
    assert left[0] <= min(left) + 1e-9


def test_many_small_savings_do_not_stand_in_the_way_of_a_large_one() -> None:
    ladders = {"embed": [Rung(7, 0), Rung(0, 100)]} | {f"m{i}": [Rung(0.1, 0), Rung(0, 1)] for i in range(5)}
    assert upgraded_within(ladders, 100) == {"embed": 1} | {f"m{i}": 0 for i in range(5)}
    assert upgraded_within(ladders, 103)["embed"] == 1
    assert sum(upgraded_within(ladders, 103).values()) == 4
    assert set(upgraded_within(ladders, 99).values()) == {0, 1}
    assert upgraded_within(ladders, 10**9) == dict.fromkeys(ladders, 1)
    for nothing in (0, -5):
        assert set(upgraded_within(ladders, nothing).values()) == {0}


def test_what_saves_most_per_bit_comes_first() -> None:
    known = {(name, form): 0.01 for name in ALLOCATED for form in (PLAIN_FOUR, ZEROS)}
    known |= {("layers.0.attn.o", form): 0.5 for form in (PLAIN_FOUR, ZEROS)}
    formats = budget(5.4).spent(dict.fromkeys(ALLOCATED, WITHOUT_ZEROS), known, RECIPE)
    assert formats["layers.0.attn.o"] == EIGHT
    assert formats["embed"] == PLAIN_FOUR  # the largest of those that cost little


def test_a_matrix_without_a_ladder_is_paid_for_too() -> None:
    known = {(name, form): 0.01 for name in ALLOCATED for form in (PLAIN_FOUR, ZEROS)}
    recipe = replace(RECIPE, exceptions={"layers.0.mlp.down": EIGHT_BITS})
    others = [name for name in ALLOCATED if name != "layers.0.mlp.down"]
    formats = budget(6.6, recipe, others).spent(dict.fromkeys(others, WITHOUT_ZEROS), known, recipe)
    assert bits({**formats, "layers.0.mlp.down": EIGHT_BITS}) <= 6.6 * WEIGHTS
    floats = replace(RECIPE, exceptions={"layers.0.mlp.down": FLOATS})
    formats = budget(6.6).spent(dict.fromkeys(others, WITHOUT_ZEROS), known, floats)
    assert set(formats.values()) == {PLAIN_FOUR}  # the floats have taken it all


LEAST_NARROW = bits({name: narrow_ladder(EIGHT_BITS, shape[1])[0] for name, shape in SHAPES.items()}) / WEIGHTS


def test_a_budget_below_the_least_is_refused() -> None:
    needs_library()
    least = np.ceil(100 * LEAST_NARROW) / 100
    with pytest.raises(
        UsageError, match=rf"budget of 2.5 cannot be kept: with every matrix in 2 bits .* takes {least}"
    ):
        budget(2.5)
    budget(LEAST_NARROW)
    budget(None)


def test_less_than_4_bits_take_needs_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(choice: str) -> bool:
        return False

    monkeypatch.setattr("edgegen_export.calibration.bit_budget.runs_kernels", none)
    with pytest.raises(UsageError, match=rf"only edgegen's kernels read, .* give {np.ceil(100 * LEAST) / 100} or more"):
        budget(4)
    assert budget(LEAST).ladder_of("embed", EIGHT_BITS) == WITHOUT_ZEROS


def test_zero_points_are_for_budgets_that_take_them_beside_embeddings_in_8_bits() -> None:
    least = bits({**dict.fromkeys(ALLOCATED, ZEROS), "embed": EIGHT}) / WEIGHTS
    for name in ALLOCATED:
        assert budget(least - 0.001).ladder_of(name, EIGHT_BITS) == WITHOUT_ZEROS
        assert budget(least).ladder_of(name, EIGHT_BITS) == WITH_ZEROS
    assert budget(None).ladder_of("layers.0.attn.o", EIGHT_BITS) == WITHOUT_ZEROS  # a third are the embedding's


def test_a_small_budget_adds_2_and_3_bits_where_blocks_of_32_divide_the_columns() -> None:
    needs_library()
    small = budget(3.5)
    forms = [(form.bits, form.symmetric) for form in small.ladder_of("embed", EIGHT_BITS)]
    assert forms == [(2, True), (2, False), (3, True), (3, False), (4, True), (4, False), (8, True)]
    assert small.ladder_of("layers.1.mlp.down", EIGHT_BITS) == (PLAIN_FOUR, ZEROS, EIGHT)
    smaller = small.ladder_of("embed", replace(EIGHT_BITS, block_size=16))
    assert [(form.bits, form.block_size) for form in smaller] == [(4, 16), (4, 16), (8, 16)]
    ladders = {name: small.ladder_of(name, EIGHT_BITS) for name in ALLOCATED}
    known = {(name, form): 4.0**-form.bits for name, forms in ladders.items() for form in forms[:-1]}
    known |= {("layers.0.attn.o", form): 1000 * 4.0**-form.bits for form in ladders["layers.0.attn.o"][:-1]}
    formats = small.spent(ladders, known, RECIPE)
    assert bits(formats) <= 3.5 * WEIGHTS
    assert formats["embed"].bits < 4 <= formats["layers.0.attn.o"].bits


def test_no_rung_has_larger_blocks_than_inputs_bear() -> None:
    for size in (16, 32, 64):
        forms = narrow_ladder(replace(EIGHT_BITS, block_size=size), columns=40)
        assert [form.block_size for form in forms] == [min(size, 32), min(size, 32), size]
        assert [(form.bits, form.symmetric) for form in forms] == [(4, True), (4, False), (8, True)]
    assert ZEROS == FOUR_BITS


def test_the_parts_of_a_fused_name() -> None:
    for modules in (["embed"], ["layers.0.attn.q", "layers.0.attn.k"], ["layers.3.mlp.down"]):
        assert parts(fused_name(modules)) == modules


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("per_weight", [2.625, 3.625, 4.5])
def test_an_embedding_and_a_head_of_few_bits_are_what_the_graphs_read(
    tmp_path: Path, tied: bool, per_weight: float
) -> None:
    """4.5 bits leave nothing over, less has 2 or 3 bits: logits are those of dequantized tables in NumPy."""
    config = replace(PLAIN, tied_head=tied)
    tensors = random_tensors(config)
    reference, store = LayerwiseModel(tensors, config, kv_spec(config)), BlockStore(tmp_path)
    made = calibrate(
        tensors,
        config,
        reference,
        IDS,
        RECIPE,
        store,
        per_weight,
        lambda done, total: None,
        Scratch(),
        held_out=IDS,
        plain=RECIPE,
    )
    matrices = [name for layer in range(3) for name in layer_matrices(config, layer)]
    names = [*matrices, "embed"] if tied else [*matrices, "embed", "head"]
    needs_library()
    if per_weight >= 4.5:
        assert {made.recipe.format_of(name) for name in names} == {PLAIN_FOUR}
    else:
        assert min(made.recipe.format_of(name).bits for name in names) < 4
        assert any("only edgegen's kernels read" in warning for warning in made.warnings)

    weights = Weights()
    params = StoredParameters(made.tensors, made.recipe, weights, lambda elements: None, store.get)
    runner = runner_over(config, params, weights, kv_spec(config), tmp_path)
    assert params.bits_per_weight <= per_weight
    found = decoded(runner, runner.new_cache(), IDS[0].tolist())
    as_stored = LayerwiseModel({**made.tensors, **dequantized(names, made, store)}, config, kv_spec(config))
    expected = as_stored.logits(as_stored.hidden([IDS[:1]])[0][0])
    # What is left is the rounding of what the matrices take; 4 bits themselves change these logits by far more.
    exact = reference.logits(reference.hidden([IDS[:1]])[0][0])
    assert np.linalg.norm(found - expected) < 0.25 * np.linalg.norm(exact - expected)


def dequantized(names: Sequence[str], made: Calibrated, store: BlockStore) -> dict[str, LazyTensor]:
    """The modules' weights as their codes have them."""
    result = dict[str, LazyTensor]()
    for name in names:
        form, start = made.recipe.format_of(name), 0
        whole = fused_weight(made.tensors, parts(name))
        values = (store.get(name, form) or rounded_plainly(whole, form)).values()
        for module in parts(name):
            stop = start + made.tensors[f"{module}.weight"].shape[0]
            result[f"{module}.weight"] = LazyTensor.from_array(values[start:stop])
            start = stop
    return result
