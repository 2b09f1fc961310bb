"""Every module of the benchmarks and of the long tests can be imported, those that no other test runs included."""

from importlib import import_module
from pkgutil import walk_packages

import pytest

import bench
from bench.compare.environments import ROOT

LONG_TESTS = [f"tests.long.{file.stem}" for file in sorted((ROOT / "tests" / "long").glob("*.py"))]


@pytest.mark.parametrize("name", [*(module.name for module in walk_packages(bench.__path__, "bench.")), *LONG_TESTS])
def test_a_module_imports_without_the_packages_of_other_runtimes(name: str) -> None:
    assert import_module(name).__doc__
