"""Frozen apps: what PyInstaller and its like make of a program."""

import sys


def is_frozen() -> bool:
    """Whether this is an app that carries its own Python."""
    return bool(getattr(sys, "frozen", False))
