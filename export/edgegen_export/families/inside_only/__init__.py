"""Families that are known inside others alone: the language models of models with eyes or ears."""
