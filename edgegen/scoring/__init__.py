"""What a model makes of a given text: scores of continuations, perplexity, and embeddings."""
