"""Prequantized checkpoints (GPTQ, AWQ, NVFP4, GGUF, …): the recipe that keeps their quantized matrices as they are.

Nothing is smoothed: a factor of a single column cannot go into the scale of a whole block. Matrices that are stored
otherwise than the scheme asks for are rounded to 8 bits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import matrices_around
from edgegen_export.calibration.layer_walk import LayerMatrix, layer_matrices
from edgegen_export.calibration.strategy import Decision
from edgegen_export.graph.fused import fused_name, parts
from edgegen_export.quantize.hessian import Hessian
from edgegen_export.quantize.recipe import EIGHT_BITS
from edgegen_export.quantize.regrouped import regrouped_form
from edgegen_export.tensors.lazy import LazyTensor

_BITS = {"int4": 4, "int8": 8}


class KeepPrequantized:
    """The strategy of a repacked recipe: it decides nothing beyond the formats that inputs bear."""

    hessians = False
    beside = nullcontext()
    enter = None

    def add(self, matrix: LayerMatrix) -> None: ...

    def decide(self, tensors: Mapping[str, LazyTensor], recipe: Quantization, head_hessian: Hessian | None) -> Decision:
        return Decision()


@dataclass(frozen=True, slots=True)
class Repacking:
    """The recipe, and what the user should know of it."""

    recipe: Quantization
    warnings: tuple[str, ...] = ()


def repacking(
    tensors: Mapping[str, LazyTensor], config: DecoderConfig, experts: Sequence[str], recipe: Quantization
) -> Repacking:
    """``recipe`` for ``tensors`` (by our names), some of which may be quantized already.

    Matrices with the bits of the recipe's scheme are repacked; without any, the recipe stays as it is.
    ``experts``: modules of matrices of experts.
    """
    bits, weights = _BITS.get(recipe.scheme), _matrices(tensors, config, experts)
    if bits is None or not any(weight.grouping for parts in weights.values() for weight in parts):
        return Repacking(recipe)
    found = {name: regrouped_form(LazyTensor.concat(parts)) for name, parts in weights.items()}
    found |= {name: _for_experts(found[name]) for name in experts}
    for gate_up, down in zip(experts[::2], experts[1::2], strict=True):
        if _bits_of(found[gate_up]) != _bits_of(found[down]):  # their operator takes one number of bits for both
            found |= {gate_up: "otherwise than their pair", down: "otherwise than their pair"}
    forms = {name: form for name, form in found.items() if isinstance(form, MatrixFormat) and form.bits == bits}
    if not forms:
        return Repacking(recipe, (_all_again(found, recipe),))
    linear = Counter(forms.values()).most_common(1)[0][0]
    exceptions = {name: forms.get(name, EIGHT_BITS) for name in found if forms.get(name) != linear}
    exceptions |= dict.fromkeys(map(fused_name, matrices_around(config)), EIGHT_BITS)
    if "head.weight" in tensors and isinstance(form := regrouped_form(tensors["head.weight"]), MatrixFormat):
        exceptions["head"] = form
    left = {name: form for name, form in found.items() if name not in forms}
    result = Quantization(recipe.scheme, linear, EIGHT_BITS, exceptions, method="repacked")
    again = f"{len(left)} of {len(found)} matrices of the layers are rounded to 8 bits: {_reasons(left)}"
    return Repacking(result, (again,) if left else ())


def _matrices(
    tensors: Mapping[str, LazyTensor], config: DecoderConfig, experts: Sequence[str]
) -> dict[str, list[LazyTensor]]:
    """The parts of the layers' matrices, by fused name."""
    of_layers = {name: modules for i in range(config.num_layers) for name, modules in layer_matrices(config, i).items()}
    matrices = {name: [tensors[f"{module}.weight"] for module in modules] for name, modules in of_layers.items()}
    return matrices | {name: [tensors[f"{module}.weight"] for module in parts(name)] for name in experts}


def _for_experts(form: MatrixFormat | str) -> MatrixFormat | str:
    """The operator of experts is given no zeros."""
    return form if isinstance(form, str) or form.symmetric else f"in {form.bits} bits with zeros, and as experts"


def _bits_of(form: MatrixFormat | str) -> int:
    return form.bits if isinstance(form, MatrixFormat) else 0


def _all_again(found: Mapping[str, MatrixFormat | str], recipe: Quantization) -> str:
    """A warning: no matrix is taken as it is."""
    ready = sorted({form.bits for form in found.values() if isinstance(form, MatrixFormat)})
    advice = f"; --int{ready[0]} takes them as they are" if ready else ""
    return (
        f"the checkpoint is quantized already, and its matrices are quantized again for {recipe.scheme}: "
        f"{_reasons(found)}{advice}"
    )


def _reasons(found: Mapping[str, MatrixFormat | str]) -> str:
    """How many matrices are stored how."""
    kinds = Counter(form if isinstance(form, str) else f"in {form.bits} bits" for form in found.values())
    return ", ".join(f"{count} stored {kind}" for kind, count in sorted(kinds.items()))
