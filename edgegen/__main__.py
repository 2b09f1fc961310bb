"""``python -m edgegen``."""

from edgegen.cli import main

if __name__ == "__main__":
    main()
