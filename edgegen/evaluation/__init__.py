"""Evaluation tasks (perplexity, multiple choice, minimal pairs) and the adapter for lm-evaluation-harness."""
