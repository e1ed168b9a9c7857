# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv export`."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from hloenv.cli import main

pytestmark = pytest.mark.jax

SOURCE = """
import jax
import jax.numpy as jnp


def largest(x):
    return jax.lax.top_k(x, 3)


def example():
    return largest, jnp.ones((4, 1000))


def nothing():
    return 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_runs_in_jax_without_hloenv(folder: Path, capsys):
    words = ["--platform", "cpu", "--policy", "gpu-forms", "--pass", "sort-forms"]
    assert main(["export", "model.py:example", "-o", "out.bin", *words]) == 0
    assert "sort-forms/argmaxes 1" in capsys.readouterr().out
    call = jax.export.deserialize(bytearray((folder / "out.bin").read_bytes())).call
    x = np.random.default_rng(0).standard_normal((4, 1000)).astype("float32")
    for output, wanted in zip(jax.jit(call)(x), jax.lax.top_k(x, 3), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_json_and_the_default_platform(folder: Path, capsys):
    assert main(["export", "model.py:example", "-o", "out.bin", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "path": "out.bin",
        "platform": "cuda",
        "accepted": {"sort-forms/argmaxes": 1},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.hlo", "-o", "out.bin"], "is not FILE.py:FUNCTION"),
        (["model.py:nothing", "-o", "out.bin"], "must return"),
        (["model.py:example", "-o", "no/out.bin"], "create it first"),
        (["model.py:example", "-o", "x", "--platform", "tpu"], "no rules for"),
        (["model.py:example", "-o", "x", "--platform", "abacus"], "must be one of"),
    ],
)
def test_errors_say_what_to_do(folder: Path, capsys, words: list[str], message: str):
    assert main(["export", *words]) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "out.bin").exists()
