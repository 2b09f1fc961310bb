"""Calibration: which matrices get how many bits, and the scales of the int8 KV cache."""
