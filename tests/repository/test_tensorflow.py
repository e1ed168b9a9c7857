# SPDX-License-Identifier: Apache-2.0
"""Messages of `import hloenv` on an unsuitable TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv._native import BUILT_WITH

SAY = """
import sys
sys.path.insert(0, sys.argv[1])
{before}
try:
    import hloenv
except ImportError as error:
    print(f"{{type(error).__mro__[1].__name__}} {{type(error).__name__}}: {{error}}")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages: hloenv and numpy, and no TensorFlow."""
    for package in (Path(hloenv.__file__).parent, Path(np.__file__).parent):
        (tmp_path / package.name).symlink_to(package)
    libraries = Path(np.__file__).parent.parent / "numpy.libs"
    if libraries.exists():
        (tmp_path / libraries.name).symlink_to(libraries)
    return tmp_path


def add_distribution(packages: Path, name: str, version: str) -> None:
    folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text)


def said(packages: Path, before: str = "") -> str:
    """What importing hloenv says where only these packages are installed."""
    child = subprocess.run(
        # -S: without the packages of this environment.
        [sys.executable, "-S", "-c", SAY.format(before=before), str(packages)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=packages,
        env={},
    )
    assert (child.returncode, child.stderr) == (0, "")
    prefix = "HloEnvError TensorflowError: "
    assert child.stdout.startswith(prefix)
    return child.stdout.removeprefix(prefix).strip()


INSTALL = f"pip install 'hloenv[cpu]' (tensorflow-cpu=={BUILT_WITH})"


def test_no_tensorflow(packages):
    message = said(packages)
    assert message.startswith(f"hloenv needs TensorFlow's libraries: {INSTALL}")


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_another_version(packages, name):
    add_distribution(packages, name, "2.19.1")
    message = said(packages)
    assert message.startswith(
        f"hloenv was built with TensorFlow {BUILT_WITH}, but {name} 2.19.1 is installed"
    )
    assert INSTALL in message


def test_a_distribution_without_its_package(packages):
    add_distribution(packages, "tensorflow-cpu", BUILT_WITH)
    assert said(packages).startswith("hloenv needs TensorFlow's libraries")


@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_library_that_cannot_be_loaded(packages, content):
    add_distribution(packages, "tensorflow-cpu", BUILT_WITH)
    (packages / "tensorflow").mkdir()
    (packages / "tensorflow" / "__init__.py").touch()
    library = packages / "tensorflow" / "libtensorflow_framework.so.2"
    if content is not None:
        library.write_bytes(content)
    message = said(packages)
    assert message.startswith(f"cannot load {library}: ")
    assert INSTALL in message


def test_another_machine(packages):
    before = "import platform; platform.machine = lambda: 'riscv64'"
    assert said(packages, before).startswith("hloenv does not support linux riscv64")
