"""ONNX graphs as the runtime reads and rewrites them: protobuf, nodes, checks, fused operators."""
