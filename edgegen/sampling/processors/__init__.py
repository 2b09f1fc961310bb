"""Logits processors, one per file."""
