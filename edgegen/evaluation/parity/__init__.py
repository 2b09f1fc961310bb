"""What quantization cost: the parity report, measured against a float32 reference and verified again."""
