"""Minimum ONNX Runtime versions by kind of graph, with the reason."""

MINIMUM_ONNXRUNTIME = "1.23.2"
MINIMUM_FOR_WINDOWS = "1.24.1"
"""Older versions attend to one position more than the sliding window."""
MINIMUM_FOR_INT8_KV = "1.27.0"
"""Older versions have no int8 KV cache on the CPU; 1.25 and 1.26 load the graphs and then fail."""
MINIMUM_FOR_EXPERTS = "1.31.0"
"""Older versions dequantize all weights of the used experts in each step, which is ten times as slow."""
