"""``python -m tests.cli.slow_command``: ``edgegen`` with steps that take long, for answers that are stopped."""

from time import sleep

from edgegen.__main__ import main
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Update

_step = Engine.step


def _slow_step(self: Engine) -> list[Update]:
    sleep(0.05)
    return _step(self)


if __name__ == "__main__":
    Engine.step = _slow_step
    main()
