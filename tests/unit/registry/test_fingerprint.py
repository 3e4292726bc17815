"""What identifies a Python function: another result, another digest."""

from __future__ import annotations

import base64
import functools
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
from pyspark.sql.functions import udf
from pyspark.sql.types import IntegerType

from geoskip.predicates import Call
from geoskip.registry import fingerprint
from geoskip.registry.fingerprint import Unidentifiable, digest, identity, is_unchanged, state_version
from geoskip.registry.functions import Function, reference
from geoskip.spark.rule.translate import implementation_of

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
    "another function of Python's": ("g = len\ndef f(x): return g(x)", "g = abs\ndef f(x): return g(x)"),
    "a set": ("s = {1}\ndef f(x): return x in s", "s = {2}\ndef f(x): return x in s"),
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
    "an attribute": ("def f(x): return f.a\nf.a = 1", "def f(x): return f.a\nf.a = 2"),
    "what a library's function is wrapped in": (
        "import functools, json\n@functools.wraps(json.dumps)\ndef f(x): return json.dumps(x) + 'a'",
        "import functools, json\n@functools.wraps(json.dumps)\ndef f(x): return json.dumps(x) + 'b'",
    ),
    "which of two": (
        "a, b = [1], [1]\nd = (a, b, a)\ndef f(x): return d",
        "a, b = [1], [1]\nd = (a, b, b)\ndef f(x): return d",
    ),
}


def made(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"deque": deque, "defaultdict": defaultdict, "itemgetter": operator.itemgetter}
    names |= {"__name__": "made", "__package__": "ourlib"}
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
        "def f(x):\n  from .deep import parse\n  return parse(x)",
    ],
    ids=["a module's module", "a module's function", "imported within", "imported from within", "by a relative name"],
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


class Plus:
    """A callable object that bears the name, the module and the attributes of a function."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: Callable[..., Any], number: int) -> None:
        functools.update_wrapper(self, function)
        self.number = number

    def __eq__(self, other: object) -> bool:
        return True

    def __call__(self, x: Any) -> Any:
        return x + self.number


def command(function: Callable[..., Any]) -> str:
    """What a session holds of a function."""
    return base64.b64encode(cloudpickle.dumps((function, None))).decode("ascii")


def wrappers(function: Any) -> dict[str, Callable[[], Any]]:
    """What bears all that ``functools.wraps`` copies, or compares as another does, by how it is made."""

    @functools.wraps(function)
    def negated(x: Any) -> Any:
        return -function(x)

    return {
        "a wrapper": lambda: negated,
        "an object": lambda: Plus(function, 1),
        "an object's further one": lambda: Plus(function, 2),
        "a bound method": lambda: Plus(function, 3).__call__,
        "another bound method": lambda: Plus(function, 4).__call__,
        "a partial": lambda: functools.update_wrapper(functools.partial(negated, 2), function),
    }


@pytest.mark.parametrize("is_stated", [False, True], ids=["by content", "by version"])
def test_what_wrappers_copy_makes_no_function_another(is_stated: bool) -> None:
    one = made(f"def f(x): return x + {9_000 + is_stated}")
    if is_stated:
        state_version(one, "1")
    functions = {"itself": one, **{name: make() for name, make in wrappers(one).items()}}
    found = {name: identity(function) for name, function in functions.items()}
    assert len(set(found.values())) == len(functions)
    assert {name: implementation_of(command(function)) for name, function in functions.items()} == {
        name: f"python:{known}" for name, known in found.items()
    }
    named = Function("f", python=("made.f",))
    assert [name for name, known in found.items() if named.is_called(Call("f", (), f"python:{known}"))] == ["itself"]


def test_versions_belong_to_objects() -> None:
    one = made("def f(x): return x + 7_777")
    objects = {name: make() for name, make in wrappers(one).items()}
    before = identity(one)
    for name, function in objects.items():
        state_version(function, name)
    assert identity(one) == before
    assert all(identity(function).endswith(f"#version:{name}") for name, function in objects.items())
    adder = Plus(one, 5)
    state_version(adder.__call__, "5")  # a method is another object whenever it is read
    assert identity(adder.__call__).endswith("#version:5")
    assert implementation_of(command(adder.__call__)) == f"python:{identity(adder.__call__)}"


def test_an_object_that_changes_is_another_function() -> None:
    adder = Plus(made("def f(x): return x"), 1)
    before = identity(adder)
    adder.number = 2
    assert identity(adder) != before


def test_a_global_that_is_assigned_changes_a_function() -> None:
    function = made("A = 1\ndef f(x): return x + A")
    assert is_unchanged(function)  # nothing has identified it
    identity(function)
    assert is_unchanged(function)
    for value in (2, sys.stdout.buffer):  # the latter has no digest
        function.__globals__["A"] = value
        assert not is_unchanged(function)
    function.__globals__["A"] = 1
    assert is_unchanged(function)


def test_what_copied_the_attributes_of_a_udf_is_not_its_function() -> None:
    plain: Any = udf(lambda x: x, IntegerType())
    copied = functools.wraps(plain)(lambda x: -x)
    assert reference(plain).function is plain.func
    assert reference(copied).function is copied


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


def test_a_package_that_is_edited_in_place_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"edited": '{"dir_info": {"editable": true}}', "copied": '{"dir_info": {}}', "released": None}
    found = {name: types.SimpleNamespace(read_text=lambda _, text=text: text) for name, text in texts.items()}
    monkeypatch.setattr(fingerprint.importlib.metadata, "distribution", found.__getitem__)
    monkeypatch.setattr(
        fingerprint.importlib.metadata, "packages_distributions", lambda: {name: [name] for name in found}
    )
    monkeypatch.setattr(fingerprint, "_is_editable", fingerprint._is_editable.__wrapped__)
    assert fingerprint._distributions.__wrapped__().keys() == {"copied", "released"}


def test_a_version_that_is_stated_after_a_copy_was_registered() -> None:
    one, other = (made(f"def f(x): return x + {number}") for number in (8_121, 8_122))
    copy, another = command(one), command(other)
    before = implementation_of(copy)
    state_version(one, "1")
    assert implementation_of(copy) == f"python:{identity(one)}" == "python:made.f#version:1" != before
    state_version(one, "2")
    assert implementation_of(copy) == f"python:{identity(one)}"
    assert implementation_of(another) == f"python:{identity(other)}" != f"python:{identity(one)}"


@pytest.mark.parametrize("by_reference", [True, False])
def test_a_module_that_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_reference: bool) -> None:
    """The bytes of a function that is pickled by reference, or reads its module by name, stay the same."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / f"reloaded_{by_reference}.py"
    file.write_text("def parse(x): return x + 1\n")
    module = importlib.import_module(file.stem)

    def registered() -> str:
        return command(
            module.parse if by_reference else made(f"import {file.stem}\ndef f(x): return {file.stem}.parse(x)")
        )

    before = registered()
    first = implementation_of(before)
    assert implementation_of(registered()) == first
    file.write_text("def parse(x): return x + 22\n")
    assert implementation_of(before).endswith(fingerprint.UNIDENTIFIED)  # workers may have either
    importlib.reload(module)
    assert registered() == before
    assert implementation_of(before) != first
    assert not implementation_of(before).endswith(fingerprint.UNIDENTIFIED)


def test_code_that_is_replaced_in_place() -> None:
    one, other = made("def f(x): return x + 8_131"), made("def f(x): return x + 8_132")
    before = identity(one)
    one.__code__ = other.__code__
    assert identity(one) == identity(other) != before
