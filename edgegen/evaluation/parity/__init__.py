"""Parity report: the cost of quantization, measured against a float32 reference and verified again."""
