# SPDX-License-Identifier: Apache-2.0
"""The code of the README and of the guide runs, and prints what the pages say."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import page_code
import pytest

import hloenv
from support.paths import ROOT
from support.run_child import run_python

# What a page needs beside hloenv itself.
_NEEDS = {
    "README.md": ("jax",),
    "docs/guide/dataset.md": ("pyarrow",),
    "docs/guide/environments.md": ("gymnasium",),
    "docs/guide/gnn_policy.md": ("gymnasium", "torch", "torch_geometric"),
    "docs/guide/jax.md": ("jax",),
    "docs/guide/rules.md": ("gymnasium",),
    "docs/guide/tune.md": ("jax", "optuna"),
}
_PAGES = [
    "README.md",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("guide", "design")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ),
]
_MAX_NOT_RUN = 2


def _marked(name: str) -> object:
    marks = [pytest.mark.compile]
    if name in _NEEDS:
        marks.append(pytest.mark.needs(*_NEEDS[name]))
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [_marked(name) for name in _PAGES])
def test_the_code_of_a_page_runs(name: str, tmp_path: Path):
    words = page_code.__file__, str(ROOT / name), str(ROOT)
    child = run_python(*words, cwd=tmp_path)
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("name", _PAGES)
def test_a_page_has_only_blocks_that_are_checked(name: str):
    blocks = page_code.code_blocks(ROOT / name)
    unknown = {each.line: each.language for each in blocks if not each.not_run}
    unknown = {k: v for k, v in unknown.items() if v not in page_code.LANGUAGES}
    assert unknown == {}
    assert sum(bool(each.not_run) for each in blocks) <= _MAX_NOT_RUN
    outside = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.M | re.S)
    assert not re.search(r"^\n {4,}\S", outside, re.M), "indented code is not run"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("docs/**/*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_has_no_outputs_and_is_in_the_site(path: Path):
    """`mkdocs build` runs them; an error in a cell fails it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [each for each in cells if each["cell_type"] == "code"]
    assert len(code) >= 3
    assert all(each["outputs"] == [] for each in code)
    assert all(each["execution_count"] is None for each in code)
    name = path.relative_to(ROOT / "docs").as_posix()
    assert name in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_policy_of_the_guide_has_at_most_60_lines():
    blocks = page_code.code_blocks(ROOT / "docs" / "guide" / "gnn_policy.md")
    (policy,) = [each.text for each in blocks if "class MyPolicy" in each.text]
    assert policy.count("\n") <= 60


def _failure(tmp_path: Path, page: str) -> str:
    (tmp_path / "page.md").write_text(page)
    words = page_code.__file__, "page.md", str(ROOT)
    child = run_python(*words, cwd=tmp_path, timeout=60)
    return child.stderr if child.returncode else ""


@pytest.mark.parametrize(
    ("page", "failure"),
    [
        ("```python\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n", ""),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "the page has\n2"),
        ("```python\nprint(1)\n```\n\nIt is like\n\n```text\n2\n```\n", ""),
        ("text\n\n```python\n1 / 0\n```\n", 'page.md", line 4'),
        ("<!-- not run: it would fail -->\n```python\n1 / 0\n```\n", ""),
        ("```console\n$ echo one two\none ...\n```\n", ""),
        ("```console\n$ echo one\ntwo\n```\n", "the page has\ntwo"),
        ("```console\n$ false\n```\n", "ended with 1"),
        ('```hlo title="a.hlo"\nx\n```\n\n```console\n$ cat a.hlo\nx\n```\n', ""),
        (
            '```python title="a.py"\nx = 1\n```\n\n```console\n$ cat a.py\nx = 1\n```\n',
            "",
        ),
        ('```cpp title="csrc/passes/registry.h"\nno such line\n```\n', "no such line"),
        ("1. indented\n\n    ```python\n    1 / 0\n    ```\n", "page.md:3: no fence"),
        ('```python linenums="1"\n1 / 0\n```\n', "page.md:1: no fence"),
    ],
)
def test_wrong_statements_of_a_page_fail(tmp_path: Path, page: str, failure: str):
    found = _failure(tmp_path, page)
    assert bool(found) == bool(failure)
    assert failure in found


def test_the_picture_is_of_its_module():
    folder = ROOT / "docs" / "images"
    alternatives = hloenv.HloEnv(folder / "example.hlo").get_alternatives(
        "algsimp", "cse"
    )
    dot = hloenv.graph.to_dot(alternatives)
    labels = {
        line
        for label in re.findall(r'label="([^"]*)"', dot)
        for line in label.split("\\n")
    }
    picture = (folder / "alternatives.svg").read_text(encoding="utf-8")
    assert labels == {
        html.unescape(each) for each in re.findall(r">([^<>]+)</text>", picture)
    }
