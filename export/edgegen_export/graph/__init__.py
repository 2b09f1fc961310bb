"""ONNX graphs: the builder, blocks, decoder, and the layer-by-layer reference."""
