"""Options as frozen dataclasses, checked when they are made."""

from edgegen.options import table as table  # so that an option of another class is known wherever one is refused
