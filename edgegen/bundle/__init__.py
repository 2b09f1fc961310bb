"""The bundle: a verified folder with graphs, weights and tokenizer, its manifest, and the store of bundles."""
