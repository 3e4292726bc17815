"""Declarations: what they are checked for, which calls they meet, what replaces and what contradicts them."""

from __future__ import annotations

import functools
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from geoskip import GeoBox, MinMax, Prefix, constant, declare, denotes, mappings, maps, quarantined, release
from geoskip.errors import MappingError
from geoskip.indexes.base import Index
from geoskip.planner import Labeller
from geoskip.predicates import Call, Column, Comparison, IsNull, Literal, Not, StartsWith
from geoskip.registry import Function, Registry, current, registry
from geoskip.registry.fingerprint import identity
from geoskip.rules import Deadline

X, S = Column("x", "int"), Column("s", "string")
OVER_X, OVER_S = MinMax("x").bind([X]), MinMax("s").bind([S])


def f(x: int) -> int:
    return x + 1


def call(function: Any = f, *args: Any, name: str = "f", kind: str = "int") -> Call:
    return Call(name, args or (X,), f"python:{identity(function)}", ("eval:100",), kind)


def elsewhere(function: Any, module: str) -> Any:
    """A function as another module has it."""
    found = types.FunctionType(function.__code__, {"__name__": module, "__builtins__": __builtins__})
    found.__module__ = module
    return found


# ---- validation

NOTHING = r"maps\(\) needs the functions that it maps"
REFUSED: dict[str, tuple[Any, str]] = {
    "no index type": (lambda: maps(f, index="geobox"), r"takes an index type such as GeoBox, got 'geobox'"),
    "one index": (lambda: maps(f, index=MinMax("x")), r"not one index: index=MinMax, got minmax\(x\)"),
    "no index": (lambda: maps(f, index=()), "takes an index type such as GeoBox, got none"),
    "another type": (lambda: maps(f, index=int), "takes an index type such as GeoBox, got <class 'int'>"),
    "no function": (lambda: maps(index=MinMax), NOTHING),
    "an empty name": (lambda: maps(" ", index=MinMax), "a function's SQL name is empty"),
    "a number": (lambda: maps(5, index=MinMax), "expected a SQL name or a function, got 5 of type int"),
    "one argument": (
        lambda: maps(f, index=MinMax)(lambda node: None),
        r"takes \(node, index\), but .* cannot",
    ),
    "three arguments": (
        lambda: maps(f, index=(MinMax, GeoBox, Prefix))(lambda node, a, b: None),
        r"or all of its indexes at once, \(node, minmax, geobox, prefix\), but",
    ),
    "no rule": (lambda: maps(f, index=MinMax)(7), "got 7, which is no function"),
    "no evaluator": (lambda: constant(f)(7), "decorates a function of the plain values, got 7"),
    "a denotation of two": (lambda: denotes(f)(lambda a, b: None), "a denotation takes the call, but"),
    "monotone": (lambda: declare(f, monotone="up"), "takes 'increasing' or 'decreasing', got 'up'"),
    "monotone by two": (lambda: declare(f, monotone=lambda a, b: None), "takes a function of the call, but"),
    "inverse of two": (lambda: declare(f, inverse=lambda a, b: None), "takes a function of the value, but"),
    "a flag": (lambda: declare(f, null_in_null_out="yes"), r"null_in_null_out=\) takes True or False, got 'yes'"),
    "a version": (lambda: declare(f, version=2), "takes a text such as '2', got 2"),
    "nothing said": (lambda: declare(f), "states no property"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_declaration_is_checked_when_it_is_made(mistake: str) -> None:
    make, said = REFUSED[mistake]
    with mappings(), pytest.raises(MappingError, match=said):
        make()


def test_two_modules_do_not_contradict_each_other() -> None:
    def says(module: str, **words: Any) -> None:
        exec("declare(f, **words)", {"__name__": module, "declare": declare, "f": f, "words": words})

    with mappings():
        says("one", monotone="increasing")
        says("one", monotone="decreasing", metric=True)  # a cell that is run again
        says("two", metric=True, null_in_null_out=True)
        with pytest.raises(MappingError, match=r"'decreasing' by one, and is now .*'increasing' by two"):
            says("two", monotone="increasing")
        said = current().properties_of(call())
        assert said is not None
        assert (said.monotone, said.metric, said.null_in_null_out) == ("decreasing", True, True)
        constant(f)(lambda x: 1)
        constant(f)(lambda x: 2)
        assert current().evaluator(call())(7) == 2  # type: ignore[misc]
        with pytest.raises(MappingError, match=r"evaluated by .*test_registry.* already, and now by other\."):
            constant(f)(elsewhere(f, "other"))
        constant(Function("f", classes=("a.B",)))(elsewhere(f, "other"))  # another function of that name
        with pytest.raises(MappingError, match="evaluated by other"):
            constant(Function("F", classes=("a.",)))(f)


# ---- which calls are met


def test_a_declaration_meets_the_function_and_not_the_name() -> None:
    ours = Function("ST_Distance", classes=("org.sedona.ST_Distance",), python=("lib.",))
    theirs = Function("st_distance", classes=("org.apache.spark.sql.catalyst.expressions.st.ST_Distance",))
    with mappings() as scope:
        maps(ours, index=GeoBox)(lambda node, index: None)
        found = {
            implementation: len(scope.rules_of(Call("ST_DISTANCE", (X, X), implementation)))
            for implementation in (
                "org.sedona.ST_Distance", "python:lib.planar#12", theirs.classes[0], "python:mine.km#34", None,
            )
        }  # fmt: skip
        assert list(found.values()) == [1, 1, 0, 0, 0]
        maps("my_distance", index=GeoBox)(lambda node, index: 1)
        first, second = (Call("My_Distance", (X, X), f"python:mine.{name}#1") for name in ("km", "miles"))
        assert len(scope.rules_of(first)) == 1, "the function that is met first"
        assert len(scope.rules_of(second)) == 0
        assert [mapping.indexes for mapping in scope.mismatches(second)] == [(GeoBox,)]
        reasons: list[str] = []
        Labeller([OVER_X], report=reasons.append).true(replace_kind(second))
        assert len(reasons) == 1
        assert "for another function that was named My_Distance when it was first met" in reasons[0]


def replace_kind(node: Call) -> Call:
    return Call(node.name, node.args, node.implementation, (), "boolean")


def test_a_function_is_met_under_whatever_name_it_is_registered() -> None:
    with mappings() as scope:
        maps(f, index=MinMax)(lambda node, index: None)
        assert len(scope.rules_of(call(name="anything"))) == 1
        partial = functools.partial(max, 3)
        declare(partial, version="1", null_in_null_out=True)
        assert scope.properties_of(Call("p", (X,), "python:" + identity(partial))) is not None


def test_a_lookup_goes_by_the_name() -> None:
    scope = Registry()
    with mappings():
        for number in range(50):
            current().add_properties(_properties(f"g{number}"))
        scope = current()
        asked: list[str] = []
        for said in scope.properties:
            original = said.function.is_called

            def is_called(node: Any, name: str = said.function.name, original: Any = original) -> bool:
                asked.append(name)
                return bool(original(node))

            object.__setattr__(said.function, "is_called", is_called)
        assert scope.properties_of(Call("G7", (X,), "a.G7")) is not None
        assert asked == ["g7"]


def _properties(name: str) -> Any:
    from geoskip.registry import FunctionProperties, Named

    return FunctionProperties(Named(name), null_in_null_out=True)


# ---- rules


def test_a_rule_run_again_replaces_itself_and_decorated_twice_it_has_both() -> None:
    with mappings() as scope:
        for text in ("1", "2"):
            names: dict[str, Any] = {"maps": maps, "MinMax": MinMax, "f": f, "__name__": "__main__"}
            exec(f"@maps(f, index=MinMax)\ndef rule(node, index):\n    return {text}", names)
        (mapping,) = scope.rules_of(call())
        assert mapping.rule(None, None) == 2
        assert mapping.name == "__main__.rule"

        @maps("g", index=Prefix)
        @maps(f, index=MinMax)
        def both(node: Any, index: Any) -> None:
            return None

        assert [m.indexes for m in scope.rules_of(call())] == [(MinMax,), (MinMax,)]
        assert [m.indexes for m in scope.rules_of(Call("g", (X,)))] == [(Prefix,)]
    assert not current().rules_of(call())


def above(node: Any, index: MinMax) -> Any:
    """``f(x) > 5`` where x > 4, not so where x <= 4, and NULL where x is."""
    match node:
        case Comparison(">" | "<=" as op, Call(_, (x,)), Literal(int() as value)):
            return index.clause(Comparison(op, x, Literal(value - 1, "int")))
        case IsNull(Call(_, (x,))):
            return index.clause(IsNull(x))


def test_one_mapping_gives_all_three_verdicts() -> None:
    with mappings():
        maps(f, index=MinMax)(above)
        condition = Comparison(">", call(), Literal(5, "int"))
        label = Labeller([OVER_X])
        assert str(label.true(condition)) == "max(x) > 4"
        assert str(label.false(condition)) == "min(x) <= 4"
        assert str(label.null(condition)) == "minmax(x) has nulls"


def test_a_mapping_of_several_indexes_is_given_one_of_each_over_its_columns() -> None:
    given: list[tuple[Any, ...]] = []
    node = call(f, X, S, kind="boolean")
    begins = Prefix("s").bind([S])
    other = MinMax("y").bind([Column("y", "int")])

    def both(node: Any, bounds: Any, texts: Any = None) -> Any:
        given.append((bounds, texts))
        return bounds.clause(Comparison(">", X, Literal(5, "int"))) if bounds is OVER_X else None

    with mappings():
        maps(f, index=(MinMax, Prefix))(both)
        assert str(Labeller([OVER_X, OVER_S, begins, other]).true(node)) == "max(x) > 5"
        assert given == [(OVER_X, begins), (OVER_S, begins)], "not of other columns"
        given.clear()
        Labeller([OVER_X]).true(node)
        assert given == [(OVER_X, None)], "the second may be missing"
        given.clear()
        Labeller([begins]).true(node)
        assert given == [], "the first may not"

        @maps(f, index=(MinMax, Prefix))
        def each(node: Any, index: Any) -> Any:
            given.append((index,))

        Labeller([OVER_S, begins]).true(node)
        assert (OVER_S,) in given
        assert (begins,) in given


def test_what_fails_is_left_out_from_then_on_until_it_is_registered_anew() -> None:
    node = call(kind="boolean")
    with mappings():
        for fails, said in (
            (lambda node, index: 1 / 0, "it failed on f(x): ZeroDivisionError: division by zero"),
            (lambda node, index: True, "it returned True for f(x) instead of a clause or None"),
        ):
            maps(f, index=MinMax)(fails)
            reasons: list[str] = []
            Labeller([OVER_X], report=reasons.append).true(node)
            ((name, why),) = quarantined().items()
            assert name == f"mapping {fails.__module__}.{fails.__qualname__}"
            assert why == f"{said}; register it again when it is mended"
            Labeller([OVER_X], report=reasons.append).true(node)
            assert reasons[1] == f"{name} is left out: {why}"
            release(name)
            assert not quarantined()
            Labeller([OVER_X]).true(node)
            assert quarantined()
            maps(f, index=MinMax)(fails)
            assert not quarantined()
    assert not quarantined()


def test_what_takes_longer_than_the_budget_is_left_out() -> None:
    with mappings():
        maps(f, index=MinMax)(above)
        condition = Comparison(">", call(), Literal(5, "int"))
        assert str(Labeller([OVER_X], watch=Deadline(most=0.0)).true(condition)) == "max(x) > 4", "it came after all"
        ((name, why),) = quarantined().items()
        assert name == f"mapping {__name__}.above"
        assert "more than the planning budget" in why
        assert str(Labeller([OVER_X]).true(condition)) == "keep every file"


def test_a_clause_over_any_index_may_be_asked_for() -> None:
    with mappings():

        @maps(f, index=Index)
        def begins(node: Any, index: Any) -> Any:
            return index.clause(StartsWith(S, "ab"))

        node = Not(call(kind="boolean"))
        assert "s" in str(Labeller([OVER_S, OVER_X]).true(node))


# ---- packages of others


def test_an_installed_package_brings_its_mappings_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from geoskip.registry.installed import load_mappings

    load_mappings()  # those of this project are not of this test
    monkeypatch.setattr(registry, "_scopes", [Registry(current())])
    code = """
        from geoskip import MinMax, maps

        @maps("house_function", index=MinMax)
        def of_the_house(node, index):
            return None
        """
    (tmp_path / "house_mappings.py").write_text(textwrap.dedent(code))
    info = tmp_path / "house-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    points = "[geoskip.udf_mappings]\nhouse = house_mappings\nbroken = no_such_module_of_the_house\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    with mappings() as scope:
        with pytest.warns(UserWarning, match="no_such_module_of_the_house could not be loaded and are left out"):
            load_mappings.__wrapped__()
        assert [m.name for m in scope.rules_of(Call("HOUSE_function", (X,)))] == ["house_mappings.of_the_house"]
    assert [m.name for m in current().rules_of(Call("house_function", (X,)))] == ["house_mappings.of_the_house"]


def test_a_library_of_functions_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from geoskip.registry.installed import offered_functions

    (tmp_path / "house_functions.py").write_text("FUNCTIONS = {'f': (abs, 'int')}")
    info = tmp_path / "house-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    points = "[geoskip.functions]\nhouse = house_functions:FUNCTIONS\nbroken = no_such_module_of_the_house:FUNCTIONS\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match="are left out") as found:
        names = [function.name for function in offered_functions()]
    assert "in_network" in names
    assert "f" not in names
    texts = sorted(str(warning.message) for warning in found)
    assert "house_functions:FUNCTIONS could not be loaded and are left out: a table of functions is a dict" in texts[0]
    assert "no_such_module_of_the_house:FUNCTIONS could not be loaded and are left out: No module" in texts[1]
