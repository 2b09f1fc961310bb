"""`python -m bench.raspberry_pis`: the figures of a row, and what is said of a bundle that is not there."""

import sys

import pytest

from bench.raspberry_pis import PIS, main, row
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore


def test_tokens_per_second_are_the_rate_over_the_weights() -> None:
    bundle = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    name, bits, weights, context, process, *speeds = row("ours", bundle, 10**6).strip("| ").split(" | ")
    size = bundle.manifest.files[bundle.variant.weights].size
    assert (name, bits, int(weights)) == ("ours", "8", round(size / 1e6))
    assert int(context.replace(",", "")) == bundle.manifest.model.max_context
    assert int(process) > 60
    assert [float(speed) for speed in speeds] == pytest.approx([pi.rate / size for pi in PIS], rel=0.05)


def test_a_bundle_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.raspberry_pis", "nothing-of-this-name"])
    assert main() == 1
    assert "nothing-of-this-name" in capsys.readouterr().err
