# SPDX-License-Identifier: Apache-2.0
"""A file uses only files above it in the two lists of ARCHITECTURE.md.

What runs when a module is imported counts; an import inside a function does not, nor
does one for type checkers alone.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest


def _order(root: Path, block: str) -> list[str]:
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    match = re.search(rf"```text {block}\n(.*?)```", text, re.DOTALL)
    assert match, f"ARCHITECTURE.md has no block ```text {block}"
    return [line.split()[0] for line in match.group(1).splitlines() if line.strip()]


def _imported(path: Path, package: Path) -> list[Path]:
    """The files of the package that `path` imports when it is imported."""
    pending: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    found = []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(
                *(node.module or "").split(".")
            )
            names = [base / alias.name for alias in node.names]
            for target in [base, *names] if node.module else names:
                found += [target.with_suffix(".py"), target / "__init__.py"]
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending += [
                n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)
            ]
    return [file for file in found if file.is_file() and file.is_relative_to(package)]


def _included(path: Path, csrc: Path) -> list[Path]:
    names = re.findall(r'^#include "(.+?)"', path.read_text(encoding="utf-8"), re.M)
    return [csrc / name for name in names if (csrc / name).is_file()]


def _unlisted(order: list[str], folder: Path, suffixes: set[str]) -> set[str]:
    files = (path for path in folder.rglob("*") if path.suffix in suffixes)
    return {str(path.relative_to(folder)) for path in files} ^ set(order)


@pytest.mark.parametrize(
    ("block", "folder", "suffixes", "uses"),
    [
        ("python-order", "python/hloenv", {".py"}, _imported),
        ("csrc-order", "csrc", {".h", ".cc"}, _included),
    ],
)
def test_files_use_only_files_above_them(root, block, folder, suffixes, uses):
    order = _order(root, block)
    base = root / folder
    assert not _unlisted(order, base, suffixes), (
        f"ARCHITECTURE.md's {block} and {folder} differ by these files"
    )
    rank = {name: position for position, name in enumerate(order)}
    wrong = [
        f"{name} uses {used.relative_to(base)}"
        for name in order
        for used in uses(base / name, base)
        if rank[str(used.relative_to(base))] > rank[name]
    ]
    assert not wrong


def test_only_the_bindings_include_pybind11(root):
    wrong = [
        str(path.relative_to(root))
        for path in sorted((root / "csrc").rglob("*"))
        if path.suffix in {".h", ".cc"}
        and path.parent.name != "bindings"
        and "pybind11" in path.read_text(encoding="utf-8")
    ]
    assert not wrong


def test_only_native_loads_the_extension(root):
    package = root / "python" / "hloenv"
    wrong = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if path.name != "_native.py"
        and re.search(
            r"import _core\b|\._core import", path.read_text(encoding="utf-8")
        )
    ]
    assert not wrong
