"""estimate(): the time, memory and disk space that an export will take, computed from its config alone.

Memory and disk follow from the shapes of the tensors. Time is a cost per parameter for each stage of a scheme, measured
with ``python -m bench.exports`` on Qwen2.5's 0.5B and 1.5B, and scaled by a matrix product that is timed on this
machine. That is an order of magnitude; what the stages really take corrects it (:mod:`edgegen.cli.remaining_time`).
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from edgegen.benchmark.memory_forecast import (
    PYTHON,
    TOKENIZER,
    MemoryForecast,
    activation_bytes,
    bytes_of_bias,
    head_activation_bytes,
    weights_in_memory,
)
from edgegen.bundle.kv_format import STORED
from edgegen.bundle.manifest import Quantization
from edgegen.graph.attention_bias import AttentionBias
from edgegen.options.engine import EngineOptions
from edgegen.system import physical_cores
from edgegen_export.architecture.components.draft_input import AssistantInput, DraftInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import (
    components_of,
    decoder_tensors,
    expert_matrices,
    layer_products,
    matrices_around,
)
from edgegen_export.calibration.bit_budget import EMBEDDING_BITS, LAYER_BITS
from edgegen_export.calibration.proposed_ids import proposed_ids
from edgegen_export.calibration.sensitivity import MEASURED_LAYERS, probe_tokens
from edgegen_export.calibration.text import OF_SMALL as OF_SMALL_TEXT
from edgegen_export.calibration.text import Amount, rows_together
from edgegen_export.files.progress import COMPARING, FINGERPRINT, KV_SCALES, QUANTIZING, SAMPLING, SMOOTHING, writing
from edgegen_export.files.threads import one_thread_per_product
from edgegen_export.graph.carried import Carried
from edgegen_export.graph.decoder import kv_spec, rotary_tables
from edgegen_export.parity.extent import OF_SMALL, WINDOW, Extent
from edgegen_export.quantize.blockwise import stored_bits
from edgegen_export.quantize.hessian import column_groups
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, FOUR_BITS, ROUNDED, Scheme, heads_format, of_ternary

REFERENCE_GFLOPS = 100.0
"""The speed of a matrix product for which the costs are."""

_PLAIN = {KV_SCALES: 10.5, COMPARING: 58.0}
_COSTS: dict[Scheme, dict[str, float]] = {
    "int8": {FINGERPRINT: 2.5, SMOOTHING: 46.0, KV_SCALES: 12.5, COMPARING: 58.0},
    "int4": {FINGERPRINT: 2.5, QUANTIZING: 115.0, KV_SCALES: 12.5, COMPARING: 58.0},
}
"""Seconds per billion parameters of each stage, where weights are calibrated: ``python -m bench.exports``."""
_KEPT_KV_SCALES = 5.0
"""The same of the KV cache's scales where states do not depend on positions, so that calibration's are taken."""
_QUANTIZED_TOKEN = 0.016
"""The same of each token of the calibration text, while it is quantized on: running the model, and Hessians."""
_SAMPLED_STEP, _SAMPLED_TOKEN = 0.06, 0.0075
"""The same of each step of sampling, which reads the weights, and of each row in it."""
_WRITING = 7.0

_MEMORY, _TENSORS_IN_MEMORY = 150_000_000, {"rounding": 1, "gptq": 2}
"""Bytes of memory that every export takes, and how many times the largest tensor in float32 by the recipe's method."""
_SMALL_FILES = 8_000_000
"""Bytes of graphs, tokenizer and parity reference."""

CONTEXT = 4096
"""Tokens of the conversation that the memory to run a bundle is estimated for, or fewer where a model takes no more."""
_BYTES_OF_TOKEN = 135
"""Of ``tokenizer.json`` for each token of the vocabulary: Llama 3's, the most among those of Llama 2 and 3, Qwen 2.5,
Mistral, Phi-3 and GPT-2."""

_EMBEDDINGS = ("embed", "head")
_SIDE, _TRIES, _TRIED_S, _MOST_CORES = 1024, 3, 0.1, 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """``seconds`` of each stage by its name, in their order; bytes of private ``memory``; bytes on the disk: of the
    ``bundle``, and the most that temporary files take beside it (``scratch``); bytes of memory that ``running`` the
    bundle takes, with :data:`CONTEXT` tokens and edgegen's kernels."""

    seconds: Mapping[str, float]
    memory: int
    bundle: int
    scratch: int
    running: int

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def disk(self) -> int:
        return self.bundle + self.scratch


def estimate(
    config: DecoderConfig, scheme: Scheme, *, fast: bool, gflops: float, head: DecoderConfig | None = None
) -> Estimate:
    """Estimate the time, memory and disk of an export, on a machine whose matrix products run at ``gflops``.

    ``head``: what proposes further tokens in the same bundle, as a decoder of its layers."""
    required, _ = decoder_tensors(config)
    parameters = sum(map(math.prod, required.values()))
    recipe = of_ternary(scheme) if config.ternary else (ROUNDED if fast else CALIBRATED)[scheme]
    costs = _calibrating(config, scheme, parameters) if recipe.calibrates else dict(_PLAIN)
    extent, computed = Extent.of(parameters), parameters + _repeated(config)
    parity = costs.pop(COMPARING) * extent.windows * extent.length / (OF_SMALL.windows * OF_SMALL.length)
    factor = REFERENCE_GFLOPS / gflops * computed / 1e9
    seconds = {name: factor * cost for name, cost in {**costs, writing(scheme): _WRITING, COMPARING: parity}.items()}
    whole = (shape for name, shape in required.items() if name != "embed_per_layer.weight")  # read row by row
    largest = 4 * max(map(math.prod, whole))
    memory = _MEMORY + _TENSORS_IN_MEMORY[recipe.method] * largest
    bundle = _bundle_bytes(config, scheme, calibrated=recipe.calibrates)
    scratch, running = _scratch_bytes(config, recipe, bundle), _running_bytes(config, scheme, recipe)
    if head is not None:
        of_head = _head_bytes(head, scheme)
        bundle, running = bundle + of_head, running + of_head + _running_head_bytes(head)
    return Estimate(seconds, memory, bundle, scratch, running)


def _calibrating(config: DecoderConfig, scheme: Scheme, parameters: int) -> dict[str, float]:
    """The costs of an export that calibrates, stage by stage in their order."""
    amount, costs = Amount.of(parameters), dict(_COSTS[scheme])
    kv = kv_spec(config).bytes_per_token
    tokens = amount.tokens if QUANTIZING in costs else amount.few
    length = min(amount.length, config.max_positions)
    rows = -(-tokens // length)
    steps = -(-rows // rows_together(rows, max(1, kv * length))) * length
    if rotary_tables(config):
        costs[KV_SCALES] = _KEPT_KV_SCALES
    sampling = _SAMPLED_STEP * steps + _SAMPLED_TOKEN * rows * length
    if QUANTIZING in costs:
        costs[QUANTIZING] += _QUANTIZED_TOKEN * tokens
    else:
        costs[SMOOTHING] *= (1 + tokens / OF_SMALL_TEXT.few) / 2
    return {FINGERPRINT: costs.pop(FINGERPRINT), SAMPLING: sampling, **costs}


@cache
def measure_gflops() -> float:
    """Billions of operations per second in products of two matrices of 1024 x 1024, one on each core: the best of a
    tenth of a second, or of three, on one core, for a product on all of them waits for the busiest. Of more than eight
    cores, eight count: stages of an export do not use more of them evenly."""
    matrix, taken = np.ones((_SIDE, _SIDE), np.float32), list[float]()
    with one_thread_per_product():
        while len(taken) < _TRIES or sum(taken) < _TRIED_S:
            begin = time.perf_counter()
            np.matmul(matrix, matrix)
            taken.append(time.perf_counter() - begin)
    return 2 * _SIDE**3 / 1e9 / max(min(taken), 1e-6) * min(_MOST_CORES, physical_cores())


def _matrices(config: DecoderConfig) -> dict[str, tuple[int, int]]:
    """The shapes of the matrices that can be quantized, by module."""
    required, _ = decoder_tensors(config)
    floats = {f"{layer}{name}" for layer, one in components_of(config) for name in one.numbers(config.hidden_size)}
    found = {
        name.removesuffix(".weight"): shape
        for name, shape in required.items()
        if len(shape) == 2 and name.endswith(".weight") and name not in floats
    }
    return {name: (shape[0], shape[1]) for name, shape in found.items() if "norm" not in name}


def _experts(config: DecoderConfig) -> set[str]:
    """The matrices of experts, which are not calibrated."""
    return {module for stack in expert_matrices(config) for module in stack}


def _repeated(config: DecoderConfig) -> int:
    """Parameters of other layers' matrices that layers compute with once more."""
    again = (one for layer in config.layers for one in layer.components if not layer.stores(one))
    return sum(math.prod(shape) for one in again for shape in one.matrices(config.hidden_size).values())


def _bundle_bytes(config: DecoderConfig, scheme: Scheme, *, calibrated: bool) -> int:
    """Weights, and what else is in a bundle."""
    required, matrices = decoder_tensors(config)[0], _matrices(config)
    floats = sum(map(math.prod, required.values())) - sum(map(math.prod, matrices.values()))
    recipe, bits = of_ternary(scheme) if config.ternary else ROUNDED[scheme], 0
    for shape in (shape for _, one in components_of(config) for shape in one.of_heads.values()):
        if form := heads_format(recipe, shape):
            floats, bits = floats - math.prod(shape), bits + stored_bits((shape[0], shape[1]), form)
    return _stored_bytes(config, matrices, scheme, calibrated=calibrated) + 4 * floats + bits // 8 + _SMALL_FILES


def _running_bytes(config: DecoderConfig, scheme: Scheme, recipe: Quantization) -> int:
    """Private memory and mapped weights of a process that runs the bundle, as ``edgegen info`` forecasts them."""
    looked_up = ("embed_per_layer",) if config.tied_head else ("embed_per_layer", "embed")
    tables = {name: shape for name, shape in _matrices(config).items() if name in looked_up}
    bundle = _bundle_bytes(config, scheme, calibrated=recipe.calibrates) - _SMALL_FILES
    bundle -= _stored_bytes(config, tables, scheme, calibrated=recipe.calibrates)
    logits, bits = config.vocab_size * config.hidden_size, recipe.linear.bits
    weights = weights_in_memory(bundle, bits, logits, with_kernels=True)
    kv = replace(kv_spec(config), dtype=STORED[-1 if bits <= EIGHT_BITS.bits else 0])
    chunk, context = EngineOptions().prefill_chunk, min(CONTEXT, config.max_positions)
    working = activation_bytes(config.hidden_size, config.vocab_size, chunk=chunk)
    return MemoryForecast(
        python=PYTHON,
        weights=weights,
        tokenizer=TOKENIZER * _BYTES_OF_TOKEN * config.vocab_size,
        kv=kv.bytes_per_token * context,
        activations=working + bytes_of_bias(_attention_bias(config), chunk=chunk, context=context),
    ).total


def _attention_bias(config: DecoderConfig) -> AttentionBias:
    """Return the biases that attention adds to its scores, as the graph will have them."""
    biased = [one for one in config.attentions.values() if one.farthest or one.alibi]
    return AttentionBias(max((one.heads for one in biased), default=0), by_layer=all(one.farthest for one in biased))


def _head_bytes(head: DecoderConfig, scheme: Scheme) -> int:
    """Weights of what proposes further tokens, beside the embedding and the head of the model: it is not calibrated,
    and what is around its layers has 8 bits at least."""
    shared = () if head.first(AssistantInput) else _EMBEDDINGS  # an assistant of Gemma 4 has a head of its own
    own = {name: shape for name, shape in _matrices(head).items() if name not in shared}
    if head.first(DraftInput) and (proposed := proposed_ids(head.vocab_size, ())) is not None:
        own["proposed"] = len(proposed), head.hidden_size
    around = {name: own.pop(name) for modules in matrices_around(head) for name in modules}
    least: Scheme = "int8" if ROUNDED[scheme].linear.bits < EIGHT_BITS.bits else scheme
    floats = sum(math.prod(shape) for shape in decoder_tensors(head)[0].values() if len(shape) == 1)
    stored = _stored_bytes(head, own, scheme, calibrated=False) + _stored_bytes(head, around, least, calibrated=False)
    return stored + 4 * floats


def _running_head_bytes(head: DecoderConfig) -> int:
    """Its KV cache, and what it computes with."""
    working = head_activation_bytes(head.hidden_size, chunk=EngineOptions().prefill_chunk)
    return kv_spec(head).bytes_per_token * min(CONTEXT, head.max_positions) + working


def _stored_bytes(
    config: DecoderConfig, matrices: Mapping[str, tuple[int, int]], scheme: Scheme, *, calibrated: bool
) -> int:
    """Bytes of these matrices on the disk."""
    recipe, bits = of_ternary(scheme) if config.ternary else ROUNDED[scheme], 0.0
    allocated, experts = calibrated and recipe.linear.bits < EIGHT_BITS.bits, _experts(config)
    for name, shape in matrices.items():
        if allocated and name not in experts:
            bits += math.prod(shape) * (EMBEDDING_BITS if name in _EMBEDDINGS else LAYER_BITS)
        else:
            bits += stored_bits(shape, recipe.embedding if name in _EMBEDDINGS else recipe.linear)
    return round(bits / 8)


def _scratch_bytes(config: DecoderConfig, recipe: Quantization, bundle: int) -> int:
    """The most that temporary files take at one time, beside the bundle's own as far as they are there then."""
    kept = kv_spec(config)
    kv = kept.bytes_per_token
    parity = kv * WINDOW * OF_SMALL.windows + 8 * config.num_layers * WINDOW * config.hidden_size
    if not recipe.calibrates:
        return parity
    gptq = recipe.method == "gptq"
    amount, d = Amount.of(sum(map(math.prod, decoder_tensors(config)[0].values()))), config.hidden_size
    tokens = amount.tokens if gptq else amount.few
    sampling = _bundle_bytes(config, "int8", calibrated=False)
    length = min(amount.length, config.max_positions)
    sampling += rows_together(tokens // length, kv * length + kept.bytes_per_row) * kv * length
    of_layer = max(len(layer_products(config, i)) for i in config.passes)
    tried = MEASURED_LAYERS * of_layer + 3  # and the forms of the table of tokens
    passes = max(map(len, config.passes.values()))  # before each of which states are kept
    entered = min(tokens, max(amount.few, length)) * config.num_layers  # for the statistics of KV caches
    judged = tried * min(length, probe_tokens(config.vocab_size))
    states = 4 * Carried(config).size * (passes * tokens + entered + judged)
    store = _stored_blocks(config) if gptq else 0
    widest = max((one.width for one in config.attentions.values()), default=0)
    shapes = ((one.matrices(d), one.products) for _, one in components_of(config))
    inner = max(found[name][1] for found, products in shapes for modules in products for name in modules)
    hessians = 4 * (3 * _products(d) + _products(widest) + _products(inner)) if gptq else 0
    return max(sampling - bundle, store + states + hessians - bundle, store + parity, 0)


def _products(columns: int) -> int:
    """Numbers of a Hessian."""
    return sum((group.stop - group.start) ** 2 for group in column_groups(columns))


def _stored_blocks(config: DecoderConfig) -> int:
    """Bytes of the matrices that GPTQ keeps until the end, each in both 4-bit formats."""
    forms = (FOUR_BITS, replace(FOUR_BITS, symmetric=True))
    experts = _experts(config)
    shapes = [shape for name, shape in _matrices(config).items() if name not in experts]
    return sum(stored_bits(shape, form) for shape in shapes for form in forms) // 8
