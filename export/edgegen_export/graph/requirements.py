"""The oldest ONNX Runtime that computes each kind of graph, and why."""

MINIMUM_ONNXRUNTIME = "1.23.2"
MINIMUM_FOR_WINDOWS = "1.24.1"
"""Older ones let a query see one position more than its window."""
MINIMUM_FOR_INT8_KV = "1.27.0"
"""Older ones have no such cache on the CPU; 1.25 and 1.26 load the graphs and then fail."""
MINIMUM_FOR_EXPERTS = "1.31.0"
"""Older ones turn all weights of the experts they use back to float32 for each step: ten times as slow."""
