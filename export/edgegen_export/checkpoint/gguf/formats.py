"""The formats of GGUF tensors: how many values a block holds, how many bytes it takes, and who can read it."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Format(NamedTuple):
    """``block`` values lie in ``nbytes``: as numbers of ``dtype``, or quantized; not every quantization is readable."""

    name: str
    block: int
    nbytes: int
    dtype: np.dtype[Any] | None = None
    readable: bool = True


FORMATS = {
    0: Format("F32", 1, 4, np.dtype("<f4")),
    1: Format("F16", 1, 2, np.dtype("<f2")),
    2: Format("Q4_0", 32, 18),
    3: Format("Q4_1", 32, 20),
    6: Format("Q5_0", 32, 22),
    7: Format("Q5_1", 32, 24),
    8: Format("Q8_0", 32, 34),
    9: Format("Q8_1", 32, 40, readable=False),
    10: Format("Q2_K", 256, 84),
    11: Format("Q3_K", 256, 110),
    12: Format("Q4_K", 256, 144),
    13: Format("Q5_K", 256, 176),
    14: Format("Q6_K", 256, 210),
    15: Format("Q8_K", 256, 292, readable=False),
    16: Format("IQ2_XXS", 256, 66),
    17: Format("IQ2_XS", 256, 74),
    18: Format("IQ3_XXS", 256, 98),
    19: Format("IQ1_S", 256, 50),
    20: Format("IQ4_NL", 32, 18),
    21: Format("IQ3_S", 256, 110),
    22: Format("IQ2_S", 256, 82),
    23: Format("IQ4_XS", 256, 136),
    24: Format("I8", 1, 1, np.dtype("i1")),
    25: Format("I16", 1, 2, np.dtype("<i2")),
    26: Format("I32", 1, 4, np.dtype("<i4")),
    27: Format("I64", 1, 8, np.dtype("<i8")),
    28: Format("F64", 1, 8, np.dtype("<f8")),
    29: Format("IQ1_M", 256, 56),
    30: Format("BF16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
    34: Format("TQ1_0", 256, 54),
    35: Format("TQ2_0", 256, 66),
    39: Format("MXFP4", 32, 17),
    40: Format("NVFP4", 64, 36, readable=False),
    41: Format("Q1_0", 128, 18, readable=False),
}
"""Type number → format, as the format's specification numbers them; tests hold it against the ``gguf`` library."""
