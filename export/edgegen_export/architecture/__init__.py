"""What a family says of a model: its config, its tensors, and how they are laid out."""
