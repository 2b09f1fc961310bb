"""The tensors of a graph, compared with what the manifest says of them, before anything is fed to it."""

from collections.abc import Iterator, Mapping, Sequence

from edgegen.bundle.manifest import GraphVariant, Model

Tensors = Mapping[str, tuple[str, Sequence[int | str | None]]]
"""ONNX Runtime's type and the shape by the tensor's name; a size that is free has a name, or none."""


def tensor_problems(variant: GraphVariant, model: Model, inputs: Tensors, outputs: Tensors) -> list[str]:
    """Return the differences between the prefill graph and the manifest in tensors that the manifest names."""
    wanted_inputs, wanted_outputs = dict(_inputs(variant)), dict(_outputs(variant, model))
    return [
        problem
        for kind, wanted, there in (("input", wanted_inputs, inputs), ("output", wanted_outputs, outputs))
        for name, sizes in wanted.items()
        if (problem := _problem(kind, name, sizes, there.get(name)))
    ] + _wrong_types(variant, inputs)


def _wrong_types(variant: GraphVariant, inputs: Tensors) -> list[str]:
    dtype = variant.kv.format.array_dtype
    wanted = "tensor(float)" if dtype == "float32" else f"tensor({dtype})"
    names = [layer.past_key for layer in (*variant.kv.layers, *variant.kv.shared)]
    found = {name: inputs[name][0] for name in names if name in inputs}
    return [
        f"its input {name!r} is a {there}, and the manifest says {wanted}"
        for name, there in found.items()
        if there != wanted
    ]


Sizes = tuple[int | None, ...]
"""The sizes that must be so, of all axes; None is any."""


def _inputs(variant: GraphVariant) -> Iterator[tuple[str, Sizes]]:
    contract, kv = variant.contract, variant.kv
    for name in (contract.input_ids, contract.position_ids, contract.logits_indices):
        yield name, (None, None)
    for kv_class in kv.classes.values():
        for name, sizes in ((kv_class.seqlens, (None,)), (kv_class.total, ())):
            if name is not None:
                yield name, sizes
    for layer in kv.layers:
        for one in (layer, *kv.readers(layer)):
            for name in (one.past_key, one.past_value):
                yield name, (None, layer.kv_heads, None, kv.format.row_width(layer.head_dim))
    for state in kv.fixed:
        yield state.past, (None, *state.shape)
    if variant.hidden_input is not None and variant.hidden_states is not None:
        yield variant.hidden_input, (None, None, variant.hidden_states.size)
    for table in variant.rotary:
        for name in (table.cos, table.sin):
            yield name, (None, len(table.inverse_frequencies))


def _outputs(variant: GraphVariant, model: Model) -> Iterator[tuple[str, Sizes]]:
    yield variant.contract.logits, (None, None, model.vocab_size)
    for layer in variant.kv.layers:
        for one in (layer, *variant.kv.readers(layer)):
            for name in (one.present_key, one.present_value):
                yield name, (None, layer.kv_heads, None, variant.kv.format.row_width(layer.head_dim))
    for state in variant.kv.fixed:
        yield state.present, (None, *state.shape)
    if variant.hidden_states is not None:
        yield variant.hidden_states.name, (None, None, variant.hidden_states.size)


def _problem(kind: str, name: str, sizes: Sizes, tensor: tuple[str, Sequence[int | str | None]] | None) -> str | None:
    if tensor is None:
        return f"it has no {kind} {name!r}"
    shape = tensor[1]
    if kind == "output" and not shape:  # a graph need not say it
        return None
    fits = len(sizes) == len(shape) and all(
        size is None or not isinstance(there, int) or size == there for size, there in zip(sizes, shape, strict=True)
    )
    said = ", ".join("…" if size is None else str(size) for size in sizes)
    return None if fits else f"its {kind} {name!r} is {list(shape)}, and the manifest says [{said}]"
