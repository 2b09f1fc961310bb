"""The model runner: ONNX Runtime sessions, KV caches, and what runs prefill and decode over them."""
