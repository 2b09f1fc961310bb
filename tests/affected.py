"""Affected tests: a pytest plugin that leaves out the tests which no change since a commit can concern.

``make affected SINCE=main`` runs it; ``make check`` leaves out those of ``--among MARK`` alone. A test depends on the
modules that it and the fixtures of its folder import, directly or not; what runs processes or reads whole folders
depends on the whole product (:data:`READ_AS_WHOLE`). A changed file that is no module stands for the modules of the
nearest folder with any, and one outside of :data:`HOMES` for everything.
"""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import PurePosixPath
from types import ModuleType

import grimp
import pytest

from tests.levels import MATERIAL
from tests.root import ROOT

HOMES = {
    "edgegen": "edgegen",
    "export/edgegen_export": "edgegen_export",
    "bench": "bench",
    "tests": "tests",
    "kernels": "edgegen.model.kernels",
    "models": "edgegen_export.pipeline",
    "docs": "tests.docs",
    "README.md": "tests.docs",
    "CHANGELOG.md": "tests.docs",
    "CONTRIBUTING.md": "tests.docs",
    "examples": "tests.e2e",
    "packaging": "tests.packaging",
    ".github": "tests.packaging",
}
"""Folders and files of the repository, each with its package, or with the module that stands for it."""

WALKED = (
    "edgegen.cli",
    "edgegen_export.checkpoint.gguf.architectures",
    "edgegen_export.families",
    "tests.families.cases",
)
"""Packages that import all of their modules by name."""

_WHOLE = "the whole product"
"""A module of no file, which imports all of the product's."""

PRODUCT = ("edgegen", "edgegen_export")

READ_AS_WHOLE = (
    "tests/cli",
    "tests/clients",
    "tests/docs",
    "tests/e2e",
    "tests/packaging",
    "tests/published",
    "tests/test_docstrings.py",
    "tests/test_layout.py",
)
"""Tests that look at all files of the product, or run its commands."""


class Dependencies:
    """The modules of the repository, and which depend on which."""

    def __init__(self) -> None:
        self._graph = grimp.build_graph(*PRODUCT, "bench", "tests", cache_dir=None)
        for package in WALKED:
            self._depends(package, self._graph.find_descendants(package))
        self._graph.add_module(_WHOLE)
        for package in PRODUCT:
            self._depends(_WHOLE, self._within(package))
        for module in self._graph.find_descendants("tests"):
            path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
            if path.is_file() and "sys.executable" in path.read_text("utf-8"):
                self._depends(module, {_WHOLE})

    def concerned(self, files: Iterable[str]) -> frozenset[str] | None:
        """The modules that depend on any of the changed ``files``, paths below the repository; None: everything may."""
        concerned = set[str]()
        for file in files:
            changed = self._modules_of(PurePosixPath(file))
            if changed is None:
                return None
            for module in changed:
                concerned |= {module, *self._graph.find_downstream_modules(module)}
        return frozenset(concerned)

    def _depends(self, module: str, modules: Set[str]) -> None:
        for one in modules:
            self._graph.add_import(importer=module, imported=one)

    def _modules_of(self, path: PurePosixPath) -> set[str] | None:
        home = next((one for one in (path, *path.parents) if str(one) in HOMES), None)
        if home is None or (path.name == "conftest.py" and path.parent == home):
            return None
        name = HOMES[str(home)]
        parts = path.with_suffix("").relative_to(home).parts if path != home else ()
        if parts[-1:] == ("__init__",):
            parts = parts[:-1]
        if path.suffix == ".py" and (module := ".".join((name, *parts))) in self._graph.modules:
            return {module}
        while parts:  # data of a package, a page, a file that is gone
            parts = parts[:-1]
            if found := self._within(".".join((name, *parts))):
                return found
        return self._within(name)

    def _within(self, package: str) -> set[str]:
        if package not in self._graph.modules:
            return set()
        return {package, *self._graph.find_descendants(package)}


def changed_files(since: str) -> list[str]:
    """Paths below the repository that differ from the commit ``since``, those that git does not track yet among them.

    Raises:
        pytest.UsageError: git knows no such commit.
    """
    changed = list[str]()
    for command in (("diff", "--name-only", "--no-renames", since), ("ls-files", "--others", "--exclude-standard")):
        git = subprocess.run(("git", *command), cwd=ROOT, capture_output=True, text=True)
        if git.returncode:
            raise pytest.UsageError(f"--since {since}: {git.stderr.strip().splitlines()[0]}")
        changed += git.stdout.splitlines()
    return changed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--since", required=True, help="run the tests that the changes since this commit may concern; '' stands for all"
    )
    parser.addoption("--among", help="a mark: tests without it run, whatever has changed")


def pytest_configure(config: pytest.Config) -> None:
    if since := str(config.getoption("--since")):
        changed_files(since)  # an unknown commit ends the run before any worker begins


@pytest.hookimpl(trylast=True)  # after what names the tests' levels
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    since, mark = str(config.getoption("--since")), config.getoption("--among")
    concerned = Dependencies().concerned(changed_files(since)) if since else None
    kept = affected_items(items, concerned, _fixtures_of_folders(config), mark and str(mark))
    config.hook.pytest_deselected(items=[*{*items} - {*kept}])
    items[:] = kept


def affected_items(
    items: Iterable[pytest.Item],
    concerned: frozenset[str] | None,
    fixtures: Mapping[str, str],
    mark: str | None = None,
) -> list[pytest.Item]:
    """The tests that depend on any of the modules ``concerned``.

    Args:
        concerned: None stands for all.
        fixtures: names of fixtures, each with the module that has it.
        mark: tests without it are kept, whatever they depend on.
    """
    if concerned is None:
        return [*items]
    return [
        item
        for item in items
        if (mark and not item.get_closest_marker(mark)) or not concerned.isdisjoint(_modules(item, fixtures))
    ]


def _modules(item: pytest.Item, fixtures: Mapping[str, str]) -> Iterator[str]:
    """The modules that a test names: its own, and those of the fixtures that it uses."""
    path = PurePosixPath(item.path.relative_to(ROOT).as_posix())
    yield ".".join(path.with_suffix("").parts)
    if any(str(one) in READ_AS_WHOLE for one in (path, *path.parents)):
        yield _WHOLE
    for name in getattr(item, "fixturenames", ()):
        if name in MATERIAL:  # an export has made it
            yield _WHOLE
        if name in fixtures:
            yield fixtures[name]


def _fixtures_of_folders(config: pytest.Config) -> dict[str, str]:
    """The names of fixtures, each with the conftest that has it, but for the one of all tests."""
    modules = [one for one in config.pluginmanager.get_plugins() if isinstance(one, ModuleType)]
    found = dict[str, str]()
    for module in modules:
        if module.__name__.endswith(".conftest") and module.__name__ != "tests.conftest":
            found |= dict.fromkeys(vars(module), module.__name__)
    return found
