"""A standalone cluster of two workers, for tests of what their Pythons have and lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import standalone_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which the other targets leave out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.clusters)
            item.add_marker(pytest.mark.jvm)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the master."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address
