"""The indexes that calls take."""

from __future__ import annotations

import pytest

from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from geoskip.sources.bound_indexes import names_of


def test_indexes_are_named_one_by_one_or_as_lists() -> None:
    names = ["minmax(a)", "minmax(b)"]
    assert names_of("f()") == []
    for given in ([MinMax("a"), "minmax(b)"], [["minmax(a)", MinMax("b")]], [(MinMax("a"),), "minmax(b)"]):
        assert names_of("f()", *given) == names
    with pytest.raises(InvalidSpecificationError, match=r"f\(\) takes indexes or their texts, .*, got 5"):
        names_of("f()", [5])
    with pytest.raises(InvalidSpecificationError, match="got an empty list; call it without one for all indexes"):
        names_of("f()", [])
