"""Options as frozen dataclasses, checked when they are made."""
