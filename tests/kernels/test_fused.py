"""fused(): a product and a sum, rounded once, as exact arithmetic has it."""

import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.build import compiler
from tests.root import ROOT

PROGRAM = r"""
#include "floats/fused.h"
#include <stdio.h>
int main(void) {
  float v[3];
  while (fread(v, sizeof v, 1, stdin)) {
    float y = fused(v[0], v[1], v[2]);
    fwrite(&y, sizeof y, 1, stdout);
  }
  return 0;
}
"""
TIES = [
    (sign * (1 + 2.0**-12) * 2.0**scale, 1 + 2.0**-12, tiny * 2.0 ** (scale - power))
    for sign in (1, -1)
    for scale in (0, 30, -60)
    for power in (50, 53, 54, 60, 80)
    for tiny in (1, -1)
]
"""Products half-way between two floats, and sums that a double cannot tell from them."""


def rounded(exact: Fraction) -> float:
    """To the nearest float32, to the even one of two."""
    if exact == 0:
        return 0.0
    exponent = max(abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length() - 1, -126)
    if abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    found = round(exact / unit) * unit
    return float(found) if abs(found) < Fraction(2) ** 128 else float("inf") * (1 if found > 0 else -1)


def triples() -> NDArray[np.float32]:
    """Hard ones, and random ones whose product and third number are of like size, or of any."""
    rng = np.random.default_rng(5)
    signs = rng.choice([-1, 1], (3000, 3))
    near = signs * rng.uniform(1, 2, (3000, 3)) * 2.0 ** rng.integers(-20, 20, (3000, 3))
    near[:, 2] *= 2.0 ** rng.integers(-45, 45, 3000)
    small = signs * rng.uniform(1, 2, (3000, 3)) * 2.0 ** rng.integers([-80, -70, -149], [-60, -50, -120], (3000, 3))
    large = signs * rng.uniform(1, 2, (3000, 3)) * 2.0 ** rng.integers([60, 60, 100], [66, 66, 127], (3000, 3))
    return np.concatenate([np.array(TIES), near, small, large]).astype(np.float32)


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_a_product_and_a_sum_are_rounded_once(tmp_path: Path) -> None:
    found = compiler()
    assert found
    (tmp_path / "program.c").write_text(PROGRAM)
    flags = ["-std=gnu11", "-O2", "-ffp-contract=off", f"-I{ROOT / 'kernels'}", "-o", str(tmp_path / "program")]
    subprocess.run([*found, str(tmp_path / "program.c"), *flags, "-lm"], check=True)
    given = triples()
    done = subprocess.run([tmp_path / "program"], input=given.tobytes(), capture_output=True, check=True)
    expected = [rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c in given]
    assert np.frombuffer(done.stdout, np.float32).tolist() == expected
