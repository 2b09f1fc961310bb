"""Run language models from edgegen bundles."""

__version__ = "0.1.0"
