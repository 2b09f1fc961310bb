"""Fixtures of every test (a home and a core of its own, no network, real test material if present) and its level."""

import gc
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from edgegen.bundle.bundle import Bundle
from edgegen.graph import check
from edgegen.model import ort_session
from edgegen_export.graph import layerwise_model
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import DIVERGENCE, LITTLE, WHOLE, compared_on
from tests.levels import LEVELS, level_of
from tests.made_once import keep_in
from tests.root import ROOT
from tests.runtime.models import write_checkpoint

# A shell starts background jobs with interrupts ignored, and so all that they start: Ctrl-C could not be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Or each of hundreds of processes would compile all that it imports, and each run of the tests all of these.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# huggingface_hub and transformers read these once, when they are imported.
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# Times are those of a busy machine as well: none is a reason to fail.
settings.register_profile("edgegen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("edgegen"), max_examples=50)  # for `make test`, half as many
settings.load_profile("edgegen")

OF_TESTS = {
    "EDGEGEN_TEST_DATA",
    "EDGEGEN_PASSED",
    "EDGEGEN_TRANSFORMERS5",
    "EDGEGEN_EVERY_CASE",
    "EDGEGEN_EMULATED",
    "EDGEGEN_PUBLISHED",
}
"""Variables that tests read; all others would be options of the commands that they run."""

ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


def pytest_configure(config: pytest.Config) -> None:
    for level, meaning in LEVELS.items():
        config.addinivalue_line("markers", f"{level}: {meaning}")
    config.addinivalue_line("markers", "slow: takes many seconds; `make check` runs it, `make test` does not")
    config.addinivalue_line("markers", "release: slow, and `make check` runs it only where a change can concern it")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test the mark of its level, and those of a release that of the slow ones."""
    unknown = set[str]()
    for item in items:
        path = PurePosixPath(item.path.relative_to(ROOT / "tests").as_posix())
        fixtures: list[str] = getattr(item, "fixturenames", [])
        if item.get_closest_marker("release"):
            item.add_marker("slow")
        level = level_of(path, [mark.name for mark in item.iter_markers()], fixtures)
        if level is None:
            unknown.add(str(path))
        else:
            item.add_marker(level)
            item.user_properties.append(("level", level))
    if unknown:
        raise pytest.UsageError(f"no level is known for {', '.join(sorted(unknown))}: name one in tests/levels.py")


def pytest_collection_finish() -> None:
    """Keep what was collected, a million objects, out of every later garbage collection, as those of LLM.close()."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same for what lives on when the tests of a file are done: imports, caches, what sessions share."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what is left at the end is freed as ever


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests and seconds by level."""
    tests, seconds = Counter[str](), dict.fromkeys(LEVELS, 0.0)
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            level = str(dict(report.user_properties)["level"])
            seconds[level] += report.duration
            tests[level] += report.when == "call" or report.skipped
    terminalreporter.section("levels")
    for level in filter(tests.__getitem__, LEVELS):
        terminalreporter.write_line(f"{level:>6}  {tests[level]:5} tests  {seconds[level]:6.0f} s")


@pytest.fixture(autouse=True, scope="session")
def one_core() -> None:
    """One core for each worker: sessions get one thread by default, and the workers' threads do not spin for cores."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(ALL_CORES)
        os.sched_setaffinity(0, [cores[int(worker.removeprefix("gw")) % len(cores)]])


@pytest.fixture
def all_cores(one_core: None) -> Iterator[None]:
    """For a test of several threads."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, ALL_CORES)
    yield
    os.sched_setaffinity(0, own)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """Nothing that tests write has to outlive a power cut: an export syncs a dozen files, which takes a disk long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # of an open file, as ever
        yield


@pytest.fixture(autouse=True, scope="session")
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep session fixtures from the user's home too."""
    with pytest.MonkeyPatch.context() as environment:
        for name in os.environ.keys() - OF_TESTS:
            if name.startswith("EDGEGEN_"):
                environment.delenv(name)
        environment.setenv("EDGEGEN_HOME", str(tmp_path_factory.mktemp("session-home")))
        yield


_NUMBERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As pytest's own, which looks for its number among the folders of all tests before it."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}-{next(_NUMBERS)}"
    folder.mkdir(mode=0o700)
    with _removed_if_passed(folder, request.session):
        yield folder


@pytest.fixture(autouse=True)
def edgegen_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An empty ``EDGEGEN_HOME`` for each test."""
    home = tmp_path_factory.getbasetemp() / f"edgegen-home-{next(_NUMBERS)}"
    monkeypatch.setenv("EDGEGEN_HOME", str(home))
    with _removed_if_passed(home, request.session):
        yield home


@contextmanager
def _removed_if_passed(folder: Path, session: pytest.Session) -> Generator[None]:
    """Remove the folder before the system writes it to a disk: a run makes a dozen gigabytes of such files, and those
    that are on a disk take minutes to be removed."""
    failed = session.testsfailed
    yield
    if session.testsfailed == failed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real checkpoints, tokenizers and texts."""
    folder = os.environ.get("EDGEGEN_TEST_DATA")
    if not folder:
        pytest.skip("EDGEGEN_TEST_DATA is not set: it names the folder of real checkpoints, tokenizers and texts")
    return Path(folder)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint whose tokens are bytes."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(autouse=True, scope="session")
def layers_opened_once() -> Iterator[None]:
    """Layers of one shape are one graph, which is fed with their weights, in hundreds of exports of small models."""
    really, kept = layerwise_model.open_session, lru_cache(64)(layerwise_model.open_session)

    def opened(model: bytes, *, keep_spinning: bool, kernels: bool = False, constants: Any = None) -> Any:
        if constants:  # which are no part of the graph
            return really(model, keep_spinning=keep_spinning, kernels=kernels, constants=constants)
        return kept(model, keep_spinning=keep_spinning, kernels=kernels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layerwise_model, "open_session", opened)
        yield


@pytest.fixture(autouse=True, scope="session")
def graphs_read_once() -> Iterator[None]:
    """A test opens the same graph with several KV caches and numbers of threads, an export compares each, and a bundle
    is verified whenever it is loaded, as each test has a home of its own: what depends on a graph's bytes is kept."""
    rewritten, found = lru_cache(32)(ort_session.with_kernels), check.graph_problems

    @lru_cache(128)
    def checked(graph: bytes, files: frozenset[tuple[str, int]]) -> list[str]:
        return found(graph, dict(files))

    def with_kernels(graph: bytes, states: Set[str] = frozenset(), *, fuse: bool = True) -> bytes:
        return rewritten(graph, frozenset(states), fuse=fuse)

    def graph_problems(graph: bytes, files: Mapping[str, int]) -> list[str]:
        return [*checked(graph, frozenset(files.items()))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ort_session, "with_kernels", with_kernels)
        patch.setattr(check, "graph_problems", graph_problems)
        yield


@pytest.fixture(autouse=True, scope="session")
def checkpoints_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Several tests of a family need the same random checkpoint, and run in any worker."""
    own = tmp_path_factory.getbasetemp()
    keep_in((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once")


@pytest.fixture(autouse=True, scope="session")
def seldom_compared() -> Iterator[None]:
    """Hundreds of small exports are not compared with their checkpoints."""
    with compared_on(None):
        yield


@pytest.fixture(scope="module")
def little_parity() -> Iterator[None]:
    """For modules whose bundles have to have a report, or that hold that the comparison runs."""
    with compared_on(LITTLE):
        yield


@pytest.fixture(scope="module")
def divergence() -> Iterator[None]:
    """For modules that look at the divergence of bundles that they export, and at no other figure."""
    with compared_on(DIVERGENCE):
        yield


@pytest.fixture(scope="module")
def whole_parity() -> Iterator[None]:
    """For modules that look at the figures of bundles that they export."""
    with compared_on(WHOLE):
        yield


@pytest.fixture(scope="session")
def int8_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with compared_on(WHOLE):
        target = tmp_path_factory.mktemp("bundles") / "tiny-int8"
        return export(str(checkpoint), target, ExportOptions(scheme="int8"))[0]
