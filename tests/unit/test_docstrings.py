"""Docstrings begin with a noun phrase or an imperative sentence that fits on a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import geoskip
import udf_mappings

LONGEST = 100
QUESTION = re.compile(r"(What|Which|Is|May|Does|Do|How|Why|Where|Whether|That|Who|Whose|When)\b")
PACKAGES = [Path(package.__file__).parent for package in (geoskip, udf_mappings) if package.__file__]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))


def faults(source: str) -> Iterator[str]:
    """Names of what has a first line that is too long, or begins like a question."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0]
            if len(first) > LONGEST or QUESTION.match(first):
                yield f"{getattr(node, 'name', 'module')}: {first}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_first_lines_say_what_a_thing_is(path: Path) -> None:
    assert list(faults(path.read_text("utf-8"))) == []


def test_a_question_and_a_long_line_are_found() -> None:
    source = f'''"""What a module is."""
def f():
    """{"x" * 101}"""
def g():
    """Return one."""
'''
    assert [fault.partition(":")[0] for fault in faults(source)] == ["module", "f"]
