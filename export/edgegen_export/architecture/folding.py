"""Weight folding: multipliers, norm offsets and what components fold are moved into the weights to save operators.

Exact except for one float32 rounding. A quantized matrix keeps its codes: only scales change.
"""

from collections.abc import Mapping

import numpy as np

from edgegen_export.architecture.components.component import scale
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.architecture.tensors import components_of, decoder_norms, extras_around
from edgegen_export.tensors.lazy import LazyTensor


def folded(config: DecoderConfig, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """``tensors`` (by our names) with offsets of norms and all multipliers folded in, and what else components fold
    (:meth:`Component.fold`); every norm then has a weight.

    The embedding's multiplier goes into the embedding. A tied head is multiplied with it, which the final norm undoes;
    the logits' multiplier goes into the final norm too.
    """
    result = dict(tensors)
    for name, (norm, shape) in decoder_norms(config).items():
        weight = result.get(f"{name}.weight") or LazyTensor.from_array(np.ones(shape, np.float32))
        result[f"{name}.weight"] = weight.affine(norm.factor, norm.factor * norm.offset)
    for layer, one in components_of(config):
        one.fold(layer, result, config.hidden_size)
    for extra in extras_around(config):
        extra.fold_around(result)

    for i, layer in enumerate(config.layers):
        # What a norm after a sublayer takes may be multiplied with anything; what it gives is added.
        post_norms = tuple(name for name in LAYER_NORMS[config.block_of(i)] if name.endswith("_post_norm"))
        outputs = post_norms or tuple(name for one in layer.components for name in one.outputs)
        scale(result, tuple(f"layers.{i}.{module}" for module in outputs), config.residual_multiplier)
        for each in config.multipliers:
            module = f"layers.{i}.{each.module}"
            for name, factor in ((f"{module}.weight", each.takes * each.gives), (f"{module}.bias", each.gives)):
                if name in result:
                    result[name] = result[name].affine(factor)
    scale(result, ("embed",), config.embedding_multiplier)
    logits = final_multiplier(config)
    assert config.final_norm or logits == 1.0, "there is nothing to fold the logits' multiplier into"
    scale(result, ("final_norm",), logits)
    if "head.bias" in result:
        result["head.bias"] = result["head.bias"].affine(config.logit_multiplier)
    return result


def final_multiplier(config: DecoderConfig) -> float:
    """Return the factor that :func:`folded` multiplies the final norm by."""
    return config.logit_multiplier / (config.embedding_multiplier if config.tied_head else 1.0)
