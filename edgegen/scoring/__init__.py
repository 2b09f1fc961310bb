"""Log-probabilities of given text: scores of continuations, and perplexity."""
