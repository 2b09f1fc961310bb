"""Our declarations of ONNX Runtime's C API fit the version that is installed; `.ci/abi` asks others."""

import shutil

import pytest

from tests.kernels.abi import ask, build_probe, places

OTHERS = {"GetApi", "CreateKernelV2", "KernelComputeV2", "KernelDestroy"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return ask(build_probe(tmp_path_factory.mktemp("probe")))


@pytest.mark.parametrize("name", places())
def test_a_place_does_what_its_name_says(name: str, found: dict[str, set[str]]) -> None:
    assert found[name] == {"right"}


def test_the_operator_is_laid_out_as_onnx_runtime_has_it(found: dict[str, set[str]]) -> None:
    assert {name: found[name] for name in OTHERS} == {name: {"right"} for name in OTHERS}
    assert found.keys() == places().keys() | OTHERS


def test_places_are_read_from_the_header() -> None:
    assert places()["ORT_CREATE_STATUS"] == 0
    assert places()["ORT_KERNEL_CONTEXT_PARALLEL_FOR"] == 274
    assert len(set(places().values())) == len(places())
