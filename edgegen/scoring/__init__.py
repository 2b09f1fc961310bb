"""Scores of given texts: continuations, perplexity, and embeddings."""
