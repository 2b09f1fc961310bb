"""A pytest plugin: tests that have passed in an earlier run are left out, and those that pass now are noted.

EDGEGEN_PASSED names the file of their ids, empty to begin with. The second of two runs then has what the first had to
skip.
"""

import os
from pathlib import Path

import pytest

_FILE = Path(os.environ["EDGEGEN_PASSED"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    before = set(_FILE.read_text("utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
    items[:] = [item for item in items if item.nodeid not in before]


class _Notes:
    """Kept where the reports arrive: not by the workers."""

    def __init__(self) -> None:
        self._passed = list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        with _FILE.open("a", encoding="utf-8") as file:
            file.writelines(f"{nodeid}\n" for nodeid in self._passed)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes())
