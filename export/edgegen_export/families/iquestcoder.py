"""IQuest-Coder: Llama by another name."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama

IQUESTCODER = Architecture(
    model_types=("iquestcoder",),
    classes=("IQuestCoderForCausalLM", "LlamaForCausalLM"),
    read=read_llama,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 76800,
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 80,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
    },
)
