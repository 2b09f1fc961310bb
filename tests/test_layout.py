"""The layout of the house: few entries, one direction of imports, no circle, no name twice."""

import configparser
from collections import Counter

import grimp
import pytest

from tests.root import ROOT

pytestmark = pytest.mark.unit

MOST_ENTRIES, MOST_EXPORTER_ENTRIES = 27, 21
MOST_LAYERS = 16


def layers(contract: str) -> list[str]:
    """The layers of a contract of ``.importlinter``, the highest first."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", "utf-8")
    return contracts[f"importlinter:contract:{contract}"]["layers"].split("\n")[1:]


@pytest.mark.parametrize(
    ("package", "most"), [("edgegen", MOST_ENTRIES), ("export/edgegen_export", MOST_EXPORTER_ENTRIES)]
)
def test_a_package_has_few_entries(package: str, most: int) -> None:
    entries = [path.name for path in (ROOT / package).iterdir() if path.name != "__pycache__"]
    assert len(entries) <= most, sorted(entries)


def test_the_runtime_has_few_layers() -> None:
    assert 1 < len(layers("runtime-layers")) <= MOST_LAYERS


@pytest.mark.parametrize("package", ["edgegen", "edgegen_export"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    """Imports inside of functions count: a lazy import may save time, but not hide a circle."""
    graph = grimp.build_graph(package, cache_dir=None)
    circles: list[str] = []
    for module in graph.modules:
        chains = [graph.find_shortest_chain(one, module) for one in graph.find_modules_directly_imported_by(module)]
        circles += [" → ".join((module, *chain)) for chain in chains if chain]
    assert circles == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """A file is found by its name alone, in a report as in a search."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py") if "node_modules" not in path.parts)
    assert [name for name, times in counts.items() if times > 1] == []
