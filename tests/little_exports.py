"""Exports of a process that has imported this are compared with their checkpoints, and calibrated, on little text.

For tests that look at no figure: `tests.forked_command` imports it, and all its forks have it.
"""

from contextlib import ExitStack

from tests.export.bundles import LITTLE, compared_on, little_calibration

_KEPT = ExitStack()
_KEPT.enter_context(compared_on(LITTLE))
_KEPT.enter_context(little_calibration())
