"""A JSON object in a text, or what keeps it from being one."""

import json
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.errors import first_line


def json_object(text: str, faults: list[str]) -> dict[str, Any] | None:
    """The object that ``text`` is; None if it is none, and ``faults`` says why.

    Raises:
        RecursionError: too many brackets stand in one another.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        faults.append(f"not JSON: {error.msg} at character {error.colno}")
        return None
    except ValueError as error:  # a number of too many digits
        faults.append(f"not JSON: {first_line(error)}")
        return None
    if isinstance(found, dict):
        return cast(dict[str, Any], found)
    faults.append(f"a JSON object expected, found {shortened(found)}")
    return None
