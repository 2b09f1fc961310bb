"""Size and quality of bundles next to GGUF files of the same checkpoints (`python -m bench.gguf`)."""
