"""Affected tests: what runs follows from what changed."""

from collections.abc import Sequence

import pytest

from edgegen.bundle.bundle import Bundle
from tests import affected
from tests.affected import Dependencies, affected_items, changed_files

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def dependencies() -> Dependencies:
    return Dependencies()


def concerned(dependencies: Dependencies, *files: str) -> set[str]:
    """The modules of tests that are concerned."""
    modules = dependencies.concerned(files)
    assert modules is not None
    return {module for module in modules if module.startswith("tests.")}


@pytest.mark.parametrize(
    ("file", "included", "left_out"),
    [
        ("edgegen/sampling/sampler.py", ["runtime.sampling.test_sampler"], ["runtime.stop_regex", "runtime.stopping"]),
        ("edgegen/server/openai/schema.py", ["runtime.server"], ["runtime.engine", "families.test_families"]),
        ("edgegen/server/static/index.html", ["runtime.server_page"], ["runtime.engine", "families.test_families"]),
        ("edgegen/cli/tune.py", ["cli.conftest", "clients.conftest"], ["runtime.engine", "families.test_exactness"]),
        (
            "export/edgegen_export/families/gemma4.py",
            ["families.test_families"],
            ["runtime.sampling", "runtime.engine"],
        ),
        ("tests/families/cases/llama.py", ["families.test_families"], ["runtime.sampling", "cli"]),
        ("tests/runtime/sampling/test_sampler.py", ["runtime.sampling.test_sampler"], ["runtime.engine", "docs"]),
        ("bench/serve/load.py", ["bench.test_serve"], ["runtime", "families", "export"]),
        ("kernels/attention/attention.c", ["kernels.test_driver", "runtime.model"], ["runtime.stop_regex"]),
        ("docs/serving.md", ["docs.test_links"], ["runtime.engine", "families.test_families", "export", "cli"]),
        ("edgegen/server/openai/gone.py", ["runtime.server"], ["runtime.engine"]),
    ],
)
def test_a_change_concerns_the_tests_that_import_it(
    file: str, included: Sequence[str], left_out: Sequence[str], dependencies: Dependencies
) -> None:
    modules = concerned(dependencies, file)
    for name in included:
        assert any(f"{module}.".startswith(f"tests.{name}.") for module in modules), name
    for name in left_out:
        assert not [module for module in modules if f"{module}.".startswith(f"tests.{name}.")], name


def test_several_changes_concern_what_each_does(dependencies: Dependencies) -> None:
    files = "bench/serve/load.py", "docs/serving.md"
    assert concerned(dependencies, *files) == concerned(dependencies, files[0]) | concerned(dependencies, files[1])


@pytest.mark.parametrize(
    "file", ["pyproject.toml", "tests/conftest.py", ".ci/run", "hatch_build.py", "new_folder/one.py"]
)
def test_a_file_of_no_package_may_concern_everything(file: str, dependencies: Dependencies) -> None:
    assert dependencies.concerned([file, "docs/serving.md"]) is None


def test_what_an_export_has_made_and_what_looks_at_all_files_depends_on_the_whole_product(
    int8_bundle: Bundle, request: pytest.FixtureRequest, dependencies: Dependencies
) -> None:
    item: pytest.Item = request.node
    for file in ("export/edgegen_export/families/gemma4.py", "edgegen/server/openai/schema.py"):
        assert affected_items([item], dependencies.concerned([file]), {}) == [item]
    for file in ("docs/serving.md", "bench/serve/load.py"):
        assert affected_items([item], dependencies.concerned([file]), {}) == []
    assert affected_items([item], None, {}) == [item]


@pytest.mark.release
def test_of_a_mark_alone_are_left_out_those_that_no_change_concerns(
    int8_bundle: Bundle, request: pytest.FixtureRequest, dependencies: Dependencies
) -> None:
    item: pytest.Item = request.node
    assert item.get_closest_marker("slow")
    concerned = dependencies.concerned(["docs/serving.md"])
    assert affected_items([item], concerned, {}, "release") == []
    assert affected_items([item], concerned, {}, "parity") == [item]
    assert affected_items([item], dependencies.concerned(["edgegen/llm.py"]), {}, "release") == [item]


def test_fixtures_of_a_folder_bring_what_their_module_imports(request: pytest.FixtureRequest) -> None:
    item: pytest.Item = request.node
    fixtures = {"request": "tests.runtime.conftest"}
    assert affected_items([item], frozenset({"tests.runtime.conftest"}), fixtures) == [item]
    assert affected_items([item], frozenset({"tests.cli.conftest"}), fixtures) == []


def test_an_unknown_commit_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match=r"--since no-such-commit: .*unknown revision"):
        changed_files("no-such-commit")


def test_folders_that_are_named_are_there() -> None:
    for name in (*affected.HOMES, *affected.READ_AS_WHOLE):
        assert (affected.ROOT / name).exists(), name
