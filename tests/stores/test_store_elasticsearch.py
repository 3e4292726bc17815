"""The search store against real servers: the suite of all stores, and what is its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoskip.stores.search import ElasticsearchStore
from tests.stores import test_stores as suite
from tests.stores.test_stores import store  # noqa: F401

globals().update({name: test for name, test in vars(suite).items() if name.startswith("test_")})

QUICK = {"number_of_replicas": 0, "index.translog.durability": "async"}


@pytest.fixture
def reopen(search_server: Any, tmp_path: Path) -> Callable[..., ElasticsearchStore]:
    """Handles of one dataset's metadata, which is empty at first."""

    def handle(**options: Any) -> ElasticsearchStore:
        return ElasticsearchStore(search_server.url, "suite", **{"settings": QUICK, "timeout": 20.0, **options})

    handle().drop()
    return handle
