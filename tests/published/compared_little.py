"""The command ``edgegen``, whose exports are compared with their checkpoints on little text.

``python -m tests.published.compared_little export ...`` is the command; what it writes differs in its report only.
"""

import runpy

from tests.export.bundles import LITTLE, compared_on

if __name__ == "__main__":
    with compared_on(LITTLE):
        runpy.run_module("edgegen", run_name="__main__", alter_sys=True)
