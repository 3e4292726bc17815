"""What identifies a Python function: another result, another digest."""

from __future__ import annotations

import base64
import importlib
import operator
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from geoskip.identity import Unidentifiable, digest, identity, state_version
from geoskip.spark.catalyst import implementation_of

PAIRS = {
    "a constant": ("def f(x): return x + 'a'", "def f(x): return x + 'b'"),
    "a constant in a comprehension": ("def f(x): return [y + 'a' for y in x]", "def f(x): return [y + 'b' for y in x]"),
    "a constant in a lambda": ("f = lambda x: x == 'a'", "f = lambda x: x == 'b'"),
    "a default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "a keyword only": ("def f(x, y=1): return x + y", "def f(x, *, y=1): return x + y"),
    "a global": ("A = 1\ndef f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    "a function it calls": (
        "def g(x): return 1\ndef f(x): return [g(y) for y in x]",
        "def g(x): return 2\ndef f(x): return [g(y) for y in x]",
    ),
    "a bound look-up": ("g = {'a': 1}.get\ndef f(x): return g(x)", "g = {'a': 2}.get\ndef f(x): return g(x)"),
    "a bound pattern": (
        "import re\ng = re.compile('a').match\ndef f(x): return g(x)",
        "import re\ng = re.compile('b').match\ndef f(x): return g(x)",
    ),
    "a separator": ("g = ','.join\ndef f(x): return g(x)", "g = ';'.join\ndef f(x): return g(x)"),
    "a deque": ("d = deque([1])\ndef f(x): return x in d", "d = deque([2])\ndef f(x): return x in d"),
    "a default of a dict": (
        "d = defaultdict(lambda: 'a')\ndef f(x): return d[x]",
        "d = defaultdict(lambda: 'b')\ndef f(x): return d[x]",
    ),
    "an item": ("g = itemgetter(1)\ndef f(x): return g(x)", "g = itemgetter(2)\ndef f(x): return g(x)"),
    "a remembered function": (
        "from functools import cache\n@cache\ndef g(x): return 1\ndef f(x): return g(x)",
        "from functools import cache\n@cache\ndef g(x): return 2\ndef f(x): return g(x)",
    ),
    "a method": (
        "class C:\n  def m(self): return 1\nc = C()\ndef f(x): return c.m()",
        "class C:\n  def m(self): return 2\nc = C()\ndef f(x): return c.m()",
    ),
    "which of two": (
        "a, b = [1], [1]\nd = (a, b, a)\ndef f(x): return d",
        "a, b = [1], [1]\nd = (a, b, b)\ndef f(x): return d",
    ),
}


def made(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"deque": deque, "defaultdict": defaultdict, "itemgetter": operator.itemgetter}
    names["__name__"] = "made"
    exec(source, names)
    return names["f"]


@pytest.mark.parametrize("pair", PAIRS)
def test_another_function_has_another_digest(pair: str) -> None:
    one, other = PAIRS[pair]
    assert digest(made(one)) != digest(made(other))
    assert digest(made(one)) == digest(made(one))
    if pair != "a remembered function":  # which is pickled by its name
        assert digest(cloudpickle.loads(cloudpickle.dumps(made(one)))) == digest(made(one))


@pytest.mark.parametrize(
    "source",
    [
        "import ourlib\ndef f(x): return ourlib.deep.parse(x)",
        "from ourlib.deep import parse\ndef f(x): return parse(x)",
        "def f(x):\n  import ourlib.deep\n  return ourlib.deep.parse(x)",
        "def f(x):\n  from ourlib.deep import parse\n  return parse(x)",
    ],
    ids=["a module's module", "a module's function", "imported within", "imported from within"],
)
def test_a_library_of_ones_own_that_changes(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ourlib").mkdir()
    found = []
    for version in "12":
        for name in ("ourlib", "ourlib.deep"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / "ourlib" / "__init__.py").write_text("from ourlib import deep\n")
        (tmp_path / "ourlib" / "deep.py").write_text(f"def parse(x): return x + {'1' * int(version)}\n")
        importlib.invalidate_caches()
        importlib.import_module("ourlib")
        found.append(digest(made(source)))
    for name in ("ourlib", "ourlib.deep"):
        monkeypatch.delitem(sys.modules, name)
    assert found[0] != found[1]


def test_attributes_are_no_globals() -> None:
    names: dict[str, Any] = {"__name__": "made", "strip": sys.stdout}
    exec("def f(x): return x.strip()", names)
    assert digest(names["f"])  # the global of the name of an attribute is not read


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import threading\ng = threading.Lock()\ndef f(x): return g", "it reaches lock"),
        ("import socket\ng = socket.socket()\ndef f(x): return g", "it reaches socket"),
        ("def f(x):\n  import no_such_library\n  return no_such_library.g(x)", "it imports no_such_library"),
        ("def outer():\n  def f(x): return g(x)\n  return f\n  g = 1\nf = outer()", "it reaches g, which has no value"),
    ],
)
def test_what_cannot_be_identified_names_the_function_and_the_way_out(source: str, why: str) -> None:
    with pytest.raises(Unidentifiable) as raised:
        identity(made(source))
    assert why in str(raised.value)
    assert "one version of" in str(raised.value)
    assert 'geoskip.declare(f, version="1")' in str(raised.value)


def test_a_module_of_the_standard_library_is_its_version() -> None:
    names: dict[str, Any] = {"__name__": "made", "operator": operator}
    exec("def f(x): return operator.neg(x)", names)
    assert digest(types.FunctionType(names["f"].__code__, names)) == digest(names["f"])


def test_a_version_that_is_stated_after_a_copy_was_registered() -> None:
    def registered(function: Callable[..., Any]) -> str:
        """As a session pickles functions of notebooks."""
        return base64.b64encode(cloudpickle.dumps((function, None))).decode("ascii")

    one, other = (made(f"def f(x): return x + {number}") for number in (8_121, 8_122))
    copy, another = registered(one), registered(other)
    before = implementation_of(copy)
    state_version(one, "1")
    assert implementation_of(copy) == f"python:{identity(one)}" == "python:made.f#version:1" != before
    state_version(one, "2")
    assert implementation_of(copy) == f"python:{identity(one)}"
    assert implementation_of(another) == f"python:{identity(other)}" != f"python:{identity(one)}"
