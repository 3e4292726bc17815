"""The rules that make skipping sound: each names a mutant that is caught, or a test that fails without it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def rules() -> Iterator[tuple[str, str, list[str]]]:
    """Section, rule, and the names that prove it."""
    for line in (HERE / "fixtures/semantics.txt").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            section, rule, names = (part.strip() for part in line.split("|"))
            yield section, rule, names.split()


@functools.cache
def functions() -> tuple[set[str], set[str]]:
    """The names of all mutants, and of all tests."""
    mutants: set[str] = set()
    tests: set[str] = set()
    for path in HERE.parent.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                made = [
                    d.func.id for d in node.decorator_list if isinstance(d, ast.Call) and isinstance(d.func, ast.Name)
                ]
                if any(name.endswith("mutant") for name in made):
                    mutants.add(node.name)
                elif node.name.startswith("test_"):
                    tests.add(node.name)
    return mutants, tests


def test_every_rule_has_a_mutant_or_a_test() -> None:
    mutants, tests = functions()
    assert not [(rule, name) for _, rule, names in rules() for name in names if name not in mutants | tests]
    assert all(names for _, _, names in rules())
    assert {section for section, _, _ in rules()} == {str(number) for number in range(1, 11)}


def test_a_mutant_breaks_one_rule_and_there_are_many() -> None:
    mutants, _ = functions()
    named = [name for _, _, names in rules() for name in names if name in mutants]
    assert len(named) == len(set(named))
    assert len(mutants) >= 40
