"""Weight folding: multipliers, norm offsets and the softplus of xIELU are moved into the weights to save operators.

Exact except for one float32 rounding. A quantized matrix keeps its codes: only scales change.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.architecture import decoder_norms, delta_numbers, mamba2_numbers, xielu_tensors
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.checkpoint import LazyTensor


def folded(config: DecoderConfig, tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """``tensors`` (by our names) with offsets of norms and all multipliers folded in; every norm then has a weight,
    xIELU the numbers that it multiplies with, a Mamba-2 mixer its rates and a skip for each channel, a gated delta net
    its rates and a norm's weight for each channel.

    The embedding's multiplier goes into the embedding. A tied head is multiplied with it, which the final norm undoes;
    the logits' multiplier goes into the final norm too.
    """
    result = dict(tensors)
    for name, (norm, shape) in decoder_norms(config).items():
        weight = result.get(f"{name}.weight") or LazyTensor.from_array(np.ones(shape, np.float32))
        result[f"{name}.weight"] = weight.affine(1.0, norm.offset)

    for i in range(config.num_layers if config.activation == "xielu" else 0):
        positive, negative, linear = xielu_tensors(i)
        beta = result[linear].read().reshape(1)
        result[linear] = LazyTensor.from_array(beta)
        # Stored before the softplus that keeps them positive.
        result[positive] = result[positive].mapped(_softplus)
        result[negative] = LazyTensor.from_array(_softplus(result[negative].read()) + beta)

    for i, layer in enumerate(config.layers):
        if layer.mamba:
            _, rate, skip = mamba2_numbers(i)
            result[rate] = result[rate].mapped(np.exp)
            result[skip] = result[skip].reordered(np.repeat(np.arange(layer.mamba.heads), layer.mamba.head_dim))

        if layer.delta:
            _, rate = delta_numbers(i)
            result[rate] = result[rate].mapped(np.exp)
            weight = f"layers.{i}.delta.norm.weight"
            repeated = np.tile(np.arange(layer.delta.value_dim), layer.delta.value_heads)
            result[weight] = result[weight].reordered(repeated)

    def multiply(names: list[str], factor: float) -> None:
        for name in names:
            if name in result:
                result[name] = result[name].affine(factor)

    # What a norm behind a sublayer takes may be multiplied with anything; what it gives is added.
    normed = any(name.endswith("_post_norm") for name in LAYER_NORMS[config.block])
    last = (
        ("attn_post_norm", "mlp_post_norm")
        if normed
        else ("attn.o", "conv.out", "mamba.out", "delta.out", "mlp.down", "shared.down")
    )
    for i in range(config.num_layers):
        experts = config.experts_of(i)
        if experts:
            multiply([f"layers.{i}.mlp.down.weight", f"layers.{i}.mlp.down.bias"], experts.routing.scaling)
        projected = bool(experts and experts.latent)  # then it is the projection that gives what is added
        for module in (f"layers.{i}.{'latent_out' if projected and name == 'mlp.down' else name}" for name in last):
            multiply([f"{module}.weight", f"{module}.bias"], config.residual_multiplier)
        for each in config.multipliers:
            multiply([f"layers.{i}.{each.module}.weight"], each.takes * each.gives)
            multiply([f"layers.{i}.{each.module}.bias"], each.gives)
    multiply(["embed.weight"], config.embedding_multiplier)
    if altup := config.altup:
        for module in (f"layers.{i}.altup" for i in range(config.num_layers)):
            multiply([f"{module}.router.weight"], 1 / config.hidden_size)
            if altup.clip is not None:
                correct = result[f"{module}.correct.weight"].read()
                clipped = np.clip(correct, -altup.clip, altup.clip)
                result[f"{module}.correct.weight"] = LazyTensor.from_array(clipped.astype(np.float32))
    if own := config.per_layer:
        multiply(["per_layer_in.weight"], own.projection_multiplier)
        multiply(["per_layer_norm.weight"], own.sum_multiplier)
        multiply(["embed_per_layer.weight"], own.sum_multiplier * own.table_multiplier)
    logits = final_multiplier(config)
    assert config.final_norm or logits == 1.0, "there is nothing to fold the logits' multiplier into"
    multiply(["final_norm.weight", "final_norm.bias"], logits)
    multiply(["head.bias"], config.logit_multiplier)
    return result


def _softplus(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.logaddexp(x, np.float32(0))


def final_multiplier(config: DecoderConfig) -> float:
    """What :func:`folded` multiplies the final norm with."""
    return config.logit_multiplier / (config.embedding_multiplier if config.tied_head else 1.0)
