"""How the search store is told of its server: what makes no sense is refused, and passwords are in no message."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError
from geoskip.stores.search import ElasticsearchStore


@pytest.mark.parametrize(
    ("hosts", "options", "what"),
    [
        ([], {}, "URL of a host"),
        ("search:9200", {}, "needs URLs"),
        ("ftp://search", {}, "needs URLs"),
        ("http://me:pw1@search", {}, "not in the URL"),
        ("http://search:9200", {"user": "me", "password": "pw1"}, "in clear"),
        ("http://search:9200", {"headers": {"Authorization": "ApiKey pw1"}}, "in clear"),
        ("http://search:99999", {"user": "me", "password": "pw1"}, "needs URLs"),
        ("http://search/?key=pw1", {}, "ends with its port or path"),
        (None, {}, "URL of a host"),
        ("http://localhost", {"headers": {"Authorization": "ApiKey pw1\n"}}, "no header can hold"),
        ("http://localhost", {"user": "me", "password": b"pw1"}, "are texts"),
        ("http://localhost", {"user": "me"}, "together"),
        ("http://localhost", {"timeout": "3"}, "no seconds"),
        ("http://localhost", {"timeout": 0}, "no seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(hosts: Any, options: Any, what: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=what) as raised:
        ElasticsearchStore(hosts, "name", **options)
    assert "pw1" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "Upper", "_x", "a/b", "a*", "x" * 300, None])
def test_names_that_no_index_may_have_are_refused(name: Any) -> None:
    with pytest.raises(InvalidSpecificationError, match="lower-case"):
        ElasticsearchStore("http://localhost", name)


def test_a_missing_client_is_said_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opensearchpy", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'geoskip\[elasticsearch\]'"):
        ElasticsearchStore("http://localhost", "name")
