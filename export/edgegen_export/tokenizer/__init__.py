"""Conversion of a checkpoint's tokenizer files to one ``tokenizer.json`` that gives the same ids."""
