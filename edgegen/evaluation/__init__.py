"""Evaluation: perplexity, multiple choice, minimal pairs, the parity report; the adapter for lm-evaluation-harness."""
