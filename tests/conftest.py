# SPDX-License-Identifier: Apache-2.0
"""Fixtures, and every reason for which a test is skipped."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hloenv._native import core
from support.run_child import RunChild

ROOT = Path(__file__).resolve().parent.parent

# Packages that a marker stands for, and what installs them.
_NEEDS = {
    "huggingface": (("datasets",), "datasets"),
    "jax": (("jax",), "hloenv[jax]"),
    "learn": (("torch", "torch_geometric"), "hloenv[learn]"),
}

# A shell starts what it puts into the background with Ctrl-C ignored, which children
# inherit; what the tests send must arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, (packages, wanted) in _NEEDS.items():
        if item.get_closest_marker(marker) is None:
            continue
        for package in packages:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed: pip install {wanted}")
    if item.get_closest_marker("gpu_compiler") and not core.has_gpu_compiler():
        pytest.skip("there is no GPU compiler in tensorflow-cpu: scripts/test_gpu.sh")


def _hlo_dir() -> Path | None:
    path = Path(os.environ.get("HLOENV_TEST_HLO", ROOT.parent / "shared" / "hlo"))
    return path if path.is_dir() else None


def _needed_hlo_dir() -> Path:
    path = _hlo_dir()
    if path is None:
        pytest.skip("no real modules here: set HLOENV_TEST_HLO to a folder of HLO text")
    return path


@pytest.fixture(scope="session", autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands keep what they measure away from the user's own store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOENV_STORE", str(tmp_path_factory.mktemp("store") / "s.sqlite"))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def hlo_dir() -> Path:
    """The folder of real modules."""
    return _needed_hlo_dir()


@pytest.fixture(scope="session")
def real_module_paths(hlo_dir: Path) -> list[Path]:
    """The real modules, sorted by path."""
    paths = sorted(hlo_dir.glob("*/*.txt"))
    assert paths, f"{hlo_dir} holds no */*.txt"
    return paths


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for `real_module_path` once for each real module."""
    if "real_module_path" not in metafunc.fixturenames:
        return
    folder = _hlo_dir()
    paths = sorted(folder.glob("*/*.txt")) if folder else []
    metafunc.parametrize(
        "real_module_path",
        paths or [None],
        ids=[f"{path.parent.name}/{path.stem}" for path in paths] or ["absent"],
        indirect=True,
    )


@pytest.fixture
def real_module_path(request: pytest.FixtureRequest) -> Path:
    """One real module; the test runs for each."""
    _needed_hlo_dir()
    path: Path = request.param
    return path


def _python(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel from the build that scripts/setup.sh left, so that nothing compiles."""
    if not list((ROOT / "build").glob("cp*/build.ninja")):
        pytest.skip("no build of the wheel here: bash scripts/setup.sh")
    folder = tmp_path_factory.mktemp("wheel")
    _python(
        *("-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps"),
        *("--no-build-isolation", "--wheel-dir", str(folder), "."),
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def built_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of the tree as it is."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed: bash scripts/setup.sh")
    folder = tmp_path_factory.mktemp("sdist")
    _python(
        "-c",
        "import sys; from scikit_build_core.build import build_sdist;"
        "build_sdist(sys.argv[1])",
        str(folder),
    )
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture
def run_child() -> RunChild:
    """Runs Python code in a child process and asserts how it ends.

    A child that a signal ends has a negative exit code, so a test of bad input that
    uses this fails when XLA aborts the process.
    """

    def run(
        code: str,
        *,
        exit_code: int = 0,
        env: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        child = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert child.returncode == exit_code, (
            f"the child ended with {child.returncode}, not {exit_code}\n"
            f"stdout:\n{child.stdout}\nstderr:\n{child.stderr}"
        )
        return child

    return run
