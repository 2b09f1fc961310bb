"""ONNX graphs of a decoder: builder, blocks, prefill and decode graphs, and the layer-by-layer reference."""
