"""The command ``edgegen``, and ``python -m edgegen``."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit code; Ctrl-C while it is imported too leaves with 130."""
    try:
        from edgegen.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
