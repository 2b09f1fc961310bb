"""Exports of a process that has imported this are compared with their checkpoints, and calibrated, on little text.

For tests that look at no figure: `tests.forked_command` imports it, and all its forks have it.
"""

from contextlib import ExitStack

from edgegen_export.preflight.estimate import measure_gflops
from tests.export.bundles import LITTLE, compared_on, little_calibration

measure_gflops()  # a tenth of a second, which is kept
_KEPT = ExitStack()
_KEPT.enter_context(compared_on(LITTLE))
_KEPT.enter_context(little_calibration())
