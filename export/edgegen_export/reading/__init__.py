"""Parts that families share in reading a config and in naming tensors."""
