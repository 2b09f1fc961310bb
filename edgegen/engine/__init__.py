"""The engine: continuous batching of sequences over one model runner. Token ids only."""
