"""Checks and estimates before the long part of an export: what would fail, and the time and memory that it takes."""
