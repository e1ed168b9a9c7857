# SPDX-License-Identifier: Apache-2.0
"""Scripts of CI that can be tested locally."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def _has_registry(root: Path, index: str, **variables: str) -> int:
    done = subprocess.run(
        ["bash", str(root / "scripts" / "dev" / "has_registry.sh")],
        env={
            **os.environ,
            "HLOENV_VENV": sys.prefix,
            "PIP_INDEX_URL": index,
            "PIP_RETRIES": "0",
            **variables,
        },
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A package index with one package, which is empty."""
    folder = tmp_path / "simple" / "iniconfig"
    folder.mkdir(parents=True)
    name, info = "iniconfig-9.0-py3-none-any.whl", "iniconfig-9.0.dist-info"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: iniconfig\nVersion: 9.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    return folder.parent


NOWHERE = "http://127.0.0.1:9/simple"


def test_an_index_that_answers_is_reachable(root: Path, index: Path):
    assert _has_registry(root, index.as_uri()) == 0


def test_an_index_that_does_not_answer_is_unreachable(root: Path):
    assert _has_registry(root, NOWHERE) == 1


def test_packages_outside_the_index_do_not_make_it_reachable(root: Path, index: Path):
    folder = index / "iniconfig"
    assert _has_registry(root, NOWHERE, PIP_EXTRA_INDEX_URL=index.as_uri()) == 1
    assert _has_registry(root, NOWHERE, PIP_FIND_LINKS=str(folder)) == 1
