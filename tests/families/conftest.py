"""Bundles that several modules need."""

import pytest

from tests.families.hybrids import BundleOf, bundles_in


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> BundleOf:
    return bundles_in(tmp_path_factory)
