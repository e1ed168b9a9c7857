# SPDX-License-Identifier: Apache-2.0
"""Contents of the wheel and of the source archive."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import PurePosixPath

import hloenv


def test_wheel_carries_the_package_and_nothing_else(built_wheel, root):
    with zipfile.ZipFile(built_wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(root / "python"))
        for path in (root / "python").rglob("*")
        if path.is_file() and path.suffix not in {".so", ".pyc"}
    }
    assert {"hloenv/py.typed", "hloenv/_core.pyi"} <= sources
    (extension,) = names - sources
    assert re.fullmatch(r"hloenv/_core\.cpython-3\d+-[\w-]+\.so", extension)
    assert sources <= names


def test_wheel_carries_neither_tensorflow_nor_headers(built_wheel):
    with zipfile.ZipFile(built_wheel) as wheel:
        names = wheel.namelist()
    wrong = [
        name
        for name in names
        if "tensorflow" in name.lower()
        or PurePosixPath(name).suffix in {".h", ".hpp", ".a", ".cc", ".2", ".cmake"}
    ]
    assert not wrong
    # The dataset is most of it.
    assert built_wheel.stat().st_size < 20_000_000


def test_wheel_says_what_it_needs(built_wheel):
    with zipfile.ZipFile(built_wheel) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = wheel.read(name).decode()
        scripts = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert f"\nVersion: {hloenv.__version__}\n" in metadata
    assert "\nRequires-Python: <3.14,>=3.11\n" in metadata
    assert 'Requires-Dist: tensorflow-cpu==2.21.0; extra == "cpu"' in metadata
    assert 'Requires-Dist: tensorflow==2.21.0; extra == "cuda"' in metadata
    assert "hloenv = hloenv.cli:main" in scripts


def test_source_archive_has_what_the_build_needs(built_sdist, root):
    with tarfile.open(built_sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"}
    for folder in ("csrc", "python"):
        needed |= {
            str(path.relative_to(root))
            for path in (root / folder).rglob("*")
            if path.is_file() and path.suffix not in {".so", ".pyc"}
        }
    assert needed <= names
    assert not [name for name in names if name.endswith(".so")]


def test_versions_agree(root):
    version = re.escape(hloenv.__version__)
    cmake = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"project\(hloenv VERSION {version} ", cmake)
    assert re.search(rf"^version: {version}$", citation, re.MULTILINE)


def test_every_place_names_one_tensorflow(root):
    places = {
        "pyproject.toml": r"tensorflow(?:-cpu)?==([\d.]+)",
        "csrc/cmake/FindTensorflowXla.cmake": r'HLOENV_TENSORFLOW_VERSION "([\d.]+)"',
        "python/hloenv/_native.py": r'BUILT_WITH = "([\d.]+)"',
        "scripts/requirements-run.txt": r"tensorflow-cpu==([\d.]+)",
    }
    found = {
        version
        for name, pattern in places.items()
        for version in re.findall(pattern, (root / name).read_text(encoding="utf-8"))
    }
    assert found == {"2.21.0"}
