"""Adapters of the compared runtimes; each runs as its own process in its own environment."""
