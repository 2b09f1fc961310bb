"""Logits processors, by subject."""
