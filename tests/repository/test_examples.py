# SPDX-License-Identifier: Apache-2.0
"""Each example runs from a shell as its docstring says, and prints its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.run_child import run_python

_EXPECTED = {
    "01_load_and_run_pass.py": "simplify: ",
    "02_decide.py": "outputs are equal",
    "03_graph.py": "decisions [",
    "04_fusion.py": "accept: ",
    "05_search.py": "replayed 2 steps",
    "07_intercept.py": "cpu: ",
    "08_measure_many.py": "second time: 0 of 8 were measured",
}
_EXPECTED_WITH_JAX = {"06_jax.py": "outputs equal"}


def _run(root: Path, name: str, *arguments: str) -> str:
    path = root / "scripts" / "examples" / name
    child = run_python(str(path), *arguments, timeout=300)
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.compile
@pytest.mark.parametrize("name", _EXPECTED)
def test_example(root, name):
    assert _EXPECTED[name] in _run(root, name)


@pytest.mark.learn
@pytest.mark.needs("gymnasium")
def test_example_with_torch(root):
    assert "512 steps: return " in _run(root, "09_ppo.py", "512")


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.parametrize("name", _EXPECTED_WITH_JAX)
def test_example_with_jax(root, name):
    assert _EXPECTED_WITH_JAX[name] in _run(root, name)


def test_examples_take_a_real_module(root, hlo_dir):
    path = str(hlo_dir / "numpyro" / "svi_iaf.txt")
    assert "simplify: " in _run(root, "01_load_and_run_pass.py", path)


def test_every_numbered_example_is_tested(root):
    names = {path.name for path in (root / "scripts" / "examples").glob("[0-9]*.py")}
    assert names == {*_EXPECTED, *_EXPECTED_WITH_JAX, "09_ppo.py"}


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.needs("ray")
def test_many_candidates_on_ray(root):
    printed = _run(root, "08_measure_many.py", "--ray")
    assert "first time: 4 of 8 were measured" in printed
    assert "second time: 0 of 8 were measured" in printed
