"""Mutants are planted at seams that exist and are public, so that no rename silences one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from geoskip.bounds.interval import bytes_of
from geoskip.bounds.sort_keys import literal_prefix
from geoskip.indexes import affix, minmax
from geoskip.indexes.minmax import MinMax
from tests.support import planting
from tests.support.planting import NoSeam, attribute, before, function, registered

HERE = Path(__file__).parent


def plants() -> list[tuple[Path, ast.Module]]:
    """The modules that plant wrong rules."""
    return [(path, ast.parse(path.read_text("utf-8"))) for path in sorted(HERE.rglob("test_*mutants.py"))]


def test_modules_of_mutants_patch_nothing_by_themselves() -> None:
    assert len(plants()) >= 7
    for path, tree in plants():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.Attribute) and node.attr in ("setattr", "setitem", "delattr")), path
            private = isinstance(node, ast.ImportFrom) and any(alias.name.startswith("_") for alias in node.names)
            assert not private, f"{path.name} imports what is private"


def test_what_is_gone_or_private_is_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("claus", "_steps"):
        with pytest.raises(NoSeam):
            before(monkeypatch, MinMax, name, lambda original, *args: original(*args))
        with pytest.raises(NoSeam):
            attribute(monkeypatch, MinMax, name, None)
    for gone in (planting._checked, MinMax, "geoskip.bounds.interval.bytes_of"):
        with pytest.raises(NoSeam):
            function(monkeypatch, gone, lambda original, *args: original(*args))
    with pytest.raises(NoSeam):
        registered(monkeypatch, bytes_of, lambda node, index: None)
    assert not issubclass(NoSeam, AssertionError)


def test_a_function_is_replaced_wherever_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ModuleType("geoskip.of_this_test")
    here.table = tables = {"LIKE": (literal_prefix, 1), "=": (bytes_of, 2)}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, here.__name__, here)
    with monkeypatch.context() as patch:
        function(patch, literal_prefix, lambda original, *args: (*original(*args), "planted"))
        assert minmax.literal_prefix("a%", "!") == affix.literal_prefix("a%", "!") == ("a", True, "planted")
        found = here.table  # type: ignore[attr-defined]
        assert found["LIKE"][0]("a", "!") == ("a", False, "planted")
        assert found["="] == (bytes_of, 2)
    assert minmax.literal_prefix is affix.literal_prefix is literal_prefix
    assert here.table is tables  # type: ignore[attr-defined]
