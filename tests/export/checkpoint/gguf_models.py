"""Tiny random models of every architecture, written to GGUF files the way llama.cpp's converter writes them.

transformers makes the model, the ``gguf`` library knows the tensors' names and writes the file; what is rearranged and
which metadata a family gets is written down in gguf_steps.py.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.quants import quantize

from tests.export.checkpoint.gguf_case import Case
from tests.export.checkpoint.gguf_steps import Arrays
from tests.oracle import import_torch, import_transformers

_FOLDER = Path(__file__).parent
_MODULES = (import_module(f"{__package__}.{path.stem}") for path in sorted(_FOLDER.glob("gguf_cases*.py")))

CASES: dict[str, Case] = {name: case for module in _MODULES for name, case in module.CASES.items()}


def random_model(case: Case) -> Any:
    """The model in float32, every parameter random, on a grid on which adding 1 loses nothing."""
    torch, transformers = import_torch(), import_transformers()
    torch.manual_seed(0)
    with transformers.modeling_utils.no_init_weights():  # StableLM's own initialization fails with norms on heads
        model = getattr(transformers, case.cls)(getattr(transformers, case.config)(**case.settings)).eval()
    model.set_attn_implementation("eager")  # the others leave Gemma 2's limit of attention logits out
    model.tie_weights()
    model.float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-128, 129, parameter.shape) / 512)
    return model


def arrays_of(model: Any) -> Arrays:
    """The state dict, without the head where it is the embedding."""
    tied = model.config.tie_word_embeddings
    return {k: v.numpy() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}


def write_gguf(
    path: Path, case: Case, model: Any, kind: GGMLQuantizationType | None = None, *, least_axes: int = 2
) -> Path:
    """The model as a GGUF file with a vocabulary of made-up tokens: float32, or matrices of another ``kind``.

    ``least_axes``: 3 for the matrices of experts only.
    """
    config = model.config
    arrays = arrays_of(model)
    for step in case.rearrange:
        arrays = step(config, arrays)
    arch = {name: number for number, name in MODEL_ARCH_NAMES.items()}[case.named_like or case.arch]
    names = get_tensor_name_map(arch, config.num_hidden_layers + 1)  # a layer may propose further tokens
    writer = GGUFWriter(path, case.arch)
    for describe in case.describe:
        describe(writer, config)
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    if getattr(config, "pad_token_id", None) is not None:
        writer.add_pad_token_id(config.pad_token_id)
    for name, array in arrays.items():
        stored = array if kind is None or array.ndim < least_axes else quantize(array, kind)
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")) or name,
            stored,
            raw_dtype=None if stored is array else kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
