# SPDX-License-Identifier: Apache-2.0
"""Folders of csrc include only folders above them; scripts/lint.sh checks python/hloenv."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

FOLDERS = (
    *("support", "workarounds", "hlo", "backend", "passes", "runtime"),
    *("rewrite", "graph", "pipeline", "bindings"),
)


def _included(path: Path, csrc: Path) -> list[str]:
    names = re.findall(r'^#include "(.+?)"', path.read_text(encoding="utf-8"), re.M)
    return [name for name in names if (csrc / name).is_file()]


def test_folders_include_only_folders_above_them(root):
    csrc = root / "csrc"
    files = [path for path in csrc.rglob("*") if path.suffix in {".h", ".cc"}]
    assert {path.relative_to(csrc).parts[0] for path in files} == set(FOLDERS)
    wrong = [
        f"{path.relative_to(csrc)} includes {name}"
        for path in files
        for name in _included(path, csrc)
        if FOLDERS.index(Path(name).parts[0])
        > FOLDERS.index(path.relative_to(csrc).parts[0])
    ]
    assert not wrong


def test_architecture_has_the_order(root):
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `csrc/(\w+)` \|", text, re.M)
    assert tuple(rows) == FOLDERS


def test_architecture_has_the_packages_in_the_order_of_their_layers(root):
    data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers = data["tool"]["importlinter"]["contracts"][0]["layers"]
    package = root / "python" / "hloenv"
    packages = [each for each in layers if (package / each / "__init__.py").is_file()]
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert rows[: len(packages)] == packages


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
