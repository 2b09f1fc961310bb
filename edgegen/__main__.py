"""The command ``edgegen``, and ``python -m edgegen``."""

import os
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit code; Ctrl-C while it is imported too leaves with 130."""
    try:
        from edgegen.cli import main as run
    except KeyboardInterrupt:
        os._exit(130)  # where the import ran a text of code, sys.exit() would end with the signal: see edgegen.cli
    run()


if __name__ == "__main__":
    main()
