"""Falcon Mamba: Mamba, whose time steps, B and C are normalized, each by its root mean square.

Published: 7B, also Falcon3-Mamba (7.5 GB in int8, 4.6 GB in int4).
"""

from tests.families.cases.case import variants
from tests.families.cases.mamba import BASE, CHANGES, OTHERS

CASES = variants("falcon_mamba", BASE, {**CHANGES, "epsilon of mixers": {"mixer_rms_eps": 0.5}}, OTHERS)
