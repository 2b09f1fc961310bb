"""Arcee (AFM): Llama with an MLP that has no gate and squares its ReLU."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import without_gate

PLAIN_TENSORS = {name: tensor for name, tensor in LLAMA_TENSORS.items() if ".mlp.gate." not in name}
"""Llama's names without those of the gate."""


ARCEE = Architecture(
    model_types=("arcee",),
    classes=("ArceeForCausalLM",),
    read=lambda read: without_gate(read_llama(read)),
    tensors=PLAIN_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "hidden_size": 2560,
        "intermediate_size": 18432,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
)
