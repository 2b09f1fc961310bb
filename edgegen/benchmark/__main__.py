"""The process in which a round is measured: ``python -m edgegen.benchmark BUNDLE OPTIONS``.

For :func:`~edgegen.benchmark.run_round`, not for people: OPTIONS is JSON, and so is every line of standard output.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgegen.benchmark.measurement import measure
from edgegen.benchmark.process import read_options
from edgegen.errors import EdgegenError


def _say(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    path, options = sys.argv[1:]
    try:
        result = measure(
            Path(path),
            read_options(options),
            on_first_token=lambda: _say(event="first token"),
            on_part=lambda: _say(event="part"),
        )
    except EdgegenError as error:
        _say(event="error", kind=type(error).__name__, message=str(error))
    else:
        _say(event="round", round=asdict(result))


if __name__ == "__main__":
    main()
