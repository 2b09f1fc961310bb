"""LoRA adapters: configuration, tensors, and merging into the base model."""
