# SPDX-License-Identifier: Apache-2.0
"""Rules for all test files: no test passes without an assertion."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import TESTS

_FILES = sorted(TESTS.rglob("*.py"))
_SKIPS = {"skip", "skipif", "importorskip"}


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What is in a function, without the functions that it defines."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def _early_returns(tree: ast.Module) -> list[int]:
    """A test that returns early passes without assertions."""
    return [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        for node in _inside(function)
        if isinstance(node, ast.Return)
    ]


def _skips(tree: ast.Module) -> list[int]:
    """conftest.py alone skips, so that every reason is in one place."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in _SKIPS
        and ast.unparse(node.value) in ("pytest", "pytest.mark")
    ]


def _wide_raises(tree: ast.Module) -> list[int]:
    """Of several statements, the wrong one may be the one that raises."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any("pytest.raises(" in ast.unparse(each) for each in node.items)
        and len(node.body) > 1
    ]


def _equal_sides(tree: ast.Module) -> list[int]:
    """A variable compared with itself; two calls or properties may differ."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and ast.dump(node.test.left) in map(ast.dump, node.test.comparators)
    ]


def _violations(text: str, *, is_conftest: bool = False) -> list[tuple[int, str]]:
    tree = ast.parse(text)
    checks = [_early_returns, _wide_raises, _equal_sides]
    if not is_conftest:
        checks.append(_skips)
    return [
        (line, check.__name__.lstrip("_")) for check in checks for line in check(tree)
    ]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_no_test_passes_without_testing(path: Path):
    is_conftest = path.name == "conftest.py"
    assert _violations(path.read_text(), is_conftest=is_conftest) == []


def test_no_two_files_of_tests_have_one_name():
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if large:\n  return", ["early_returns"]),
        ("def inner():\n  return 1\nassert inner() == 1", []),
        ("pytest.skip('no time')", ["skips"]),
        ("pytest.importorskip('jax')", ["skips"]),
        ("with pytest.raises(ValueError):\n  prepare()\n  act()", ["wide_raises"]),
        ("with pytest.raises(ValueError):\n  act()", []),
        ("assert x == x", ["equal_sides"]),
        ("assert f() == f()", []),
    ],
)
def test_the_rules_see_what_breaks_them(body: str, found: list[str]):
    lines = body.splitlines()
    text = "def test_it():\n" + "".join(f" {line}\n" for line in lines)
    assert [rule for _, rule in _violations(text)] == found
