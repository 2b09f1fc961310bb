"""Whether a run has every case, as those of `make families` and `make published`, or a sample, as `make release`."""

import os

EVERY = os.environ.get("EDGEGEN_EVERY_CASE") == "1"
