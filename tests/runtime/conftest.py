"""Bundles and models that the runtime's tests share, made once."""

from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.model.interfaces import Runner
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import WHOLE, compared_on

OPTIONS = EngineOptions(threads=1)


@pytest.fixture(scope="session")
def fp32_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with compared_on(WHOLE):
        target = tmp_path_factory.mktemp("bundles") / "tiny-fp32"
        return export(str(checkpoint), target, ExportOptions(scheme="fp32"))[0]


@pytest.fixture(params=["int8", "fp32"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    """Both, one after the other."""
    scheme: Scheme = request.param
    return request.getfixturevalue(f"{scheme}_bundle")


@pytest.fixture
def runner(bundle: Bundle) -> Runner[Any]:
    return open_runner(bundle, OPTIONS)


@pytest.fixture
def llm(bundle: Bundle) -> LLM:
    return LLM.load(bundle.path, options=OPTIONS)


@pytest.fixture(scope="session")
def stories(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A real trained model."""
    source = test_data / "models" / "gpt2-stories-0.9m"
    with compared_on(WHOLE):
        return export(str(source), tmp_path_factory.mktemp("bundles") / "stories-int8", ExportOptions(scheme="int8"))[0]
