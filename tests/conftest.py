# SPDX-License-Identifier: Apache-2.0
"""Fixtures, and every reason for which a test is skipped or left out."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hloenv import HloModule
from hloenv._native import core
from support.processor import has_products_of_bf16
from support.run_child import RunChild, run_python

# Processes of pytest, and what they start, share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent

# Packages that a marker stands for.
_PACKAGES_OF = {
    "huggingface": ("datasets",),
    "jax": ("jax",),
    "learn": ("torch", "torch_geometric"),
}
# What installs a package, where that is not the package's own name.
_INSTALLED_BY = {
    "cmaes": "hloenv[tune]",
    "egglog": "hloenv[egraph]",
    "enzyme_ad": "hloenv[enzyme]",
    "gymnasium": "hloenv[rl]",
    "jax": "hloenv[jax]",
    "matplotlib": "hloenv[bench]",
    "networkx": "hloenv[graph]",
    "optuna": "hloenv[tune]",
    "playwright": "playwright",
    "pyarrow": "hloenv[store]",
    "ray": "hloenv[ray]",
    "stable_baselines3": "hloenv[rl]",
    "torch": "hloenv[learn]",
    "torch_geometric": "hloenv[learn]",
}
# Memory maps that a test can use up in some seconds.
_MAX_MAPS = 200_000
# Packages that files need to be collected: what their text imports, and what else is
# imported by files and folders.
_IMPORT = re.compile(
    r"^(?:import|from) (gymnasium|jax|playwright|torch)\b", re.MULTILINE
)
_IMPORTS = {
    "envs": "gymnasium",
    "learn": "gymnasium",
    "test_browser.py": "playwright",
    "test_browser_slow.py": "playwright",
    "test_demonstrations.py": "torch",
    "test_jit_pickled.py": "jax",
    "test_substitution_policy.py": "torch",
    "test_substitution_search.py": "gymnasium",
}

# A shell starts what it puts into the background with Ctrl-C ignored, which children
# inherit; what the tests send must arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds what the default run leaves out or takes leniently."""
    group = parser.getgroup("hloenv")
    group.addoption(
        "--require-packages",
        action="store_true",
        help="a test whose package is not installed fails instead of being skipped",
    )
    group.addoption(
        "--all-sizes",
        action="store_true",
        help="also run on the real modules that are above a test's max_instructions",
    )


def _without_package(config: pytest.Config, package: str) -> None:
    """Ends a test whose `package` is not installed."""
    reason = f"{package} is not installed: pip install " + _INSTALLED_BY.get(
        package, package
    )
    if config.getoption("require_packages"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@functools.cache
def _has_namespaces() -> bool:
    """Whether `unshare` gives a child no network, to root or to anyone."""
    if shutil.which("unshare") is None:
        return False
    return any(
        subprocess.run(
            ["unshare", *options, "--net", "true"], capture_output=True, check=False
        ).returncode
        == 0
        for options in ((), ("--map-root-user",))
    )


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Skips the files that cannot be imported without a package."""
    if isinstance(collector, pytest.Module):
        path = collector.path
        packages = [_IMPORTS[n] for n in (path.name, path.parent.name) if n in _IMPORTS]
        packages += _IMPORT.findall(path.read_text(encoding="utf-8"))
        for package in packages:
            if not _is_installed(package):
                # Not here, where it would end the whole run.
                collector.collect = functools.partial(
                    _without_package, collector.config, package
                )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips the tests that need what is not here."""
    packages = [
        package
        for marker, needed in _PACKAGES_OF.items()
        if item.get_closest_marker(marker) is not None
        for package in needed
    ]
    for marker in item.iter_markers("needs"):
        packages += marker.args
    for package in packages:
        if not _is_installed(package):
            _without_package(item.config, package)
    for marker in item.iter_markers("needs_program"):
        for program in marker.args:
            if shutil.which(program) is None:
                pytest.skip(f"the program {program} is not installed")
    if item.get_closest_marker("namespaces") and not _has_namespaces():
        pytest.skip("the system lets nobody make a namespace without a network")
    if item.get_closest_marker("two_cores") and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is only one core here")
    if item.get_closest_marker("bf16_products") and not has_products_of_bf16():
        pytest.skip("this processor does not multiply bf16")
    if item.get_closest_marker("gpu_compiler") and not core.has_gpu_compiler():
        pytest.skip(
            "there is no GPU compiler in tensorflow-cpu: scripts/dev/test_gpu.sh"
        )
    if item.get_closest_marker("cpu_wheel") and core.has_gpu_compiler():
        pytest.skip("TensorFlow's CUDA wheel has a GPU compiler")


_LEFT_OUT: Counter[str] = Counter()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts what the default run leaves out, by marker."""
    for item in items:
        markers = [m for m in _OPTIONAL if item.get_closest_marker(m) is not None]
        _LEFT_OUT[markers[0] if markers else "by -m or -k"] += 1


# Markers of tests that `addopts` leaves out.
_OPTIONAL = ("ci", "slow", "fuzz", "bench", "network")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many tests were left out; skips have their own lines (-ra)."""
    if _LEFT_OUT:
        counts = ", ".join(f"{n} {name}" for name, n in sorted(_LEFT_OUT.items()))
        terminalreporter.write_line(f"left out: {counts}")


def _hlo_dir() -> Path | None:
    """The folder of real modules, if there is one; a folder that is asked for must."""
    given = os.environ.get("HLOENV_TEST_HLO")
    path = ROOT.parent / "shared" / "hlo" if given is None else Path(given)
    if path.is_dir():
        return path
    if given is not None:
        raise pytest.UsageError(f"HLOENV_TEST_HLO={given} is no folder")
    return None


def _needed_hlo_dir() -> Path:
    path = _hlo_dir()
    if path is None:
        pytest.skip("no real modules here: set HLOENV_TEST_HLO to a folder of HLO text")
    return path


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Collections look only at what a file's tests make, not at all libraries' objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def settings_of_jax() -> Iterator[None]:
    """No test leaves jax's settings changed for what runs in its process afterwards."""
    config = getattr(sys.modules.get("jax"), "config", None)
    before = {} if config is None else dict(config.values)
    yield
    changed = {
        name: config.values[name]
        for name, value in before.items()
        if config.values[name] != value
    }
    for name in changed:
        config.update(name, before[name])
    assert not changed, f"the test has left jax's settings changed: {changed}"


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
def optional_hlo_dir() -> Path | None:
    """The folder of real modules; None if there is none."""
    return _hlo_dir()


@pytest.fixture(scope="session")
def mutant_paths() -> list[Path]:
    """Modules that once ended the process, beside the folder of real modules."""
    folder = ROOT.parent / "shared" / "mutants"
    paths = sorted(path for path in folder.glob("*") if path.suffix != ".md")
    if not paths:
        pytest.skip(f"no modules that once ended the process in {folder}")
    return paths


@pytest.fixture(scope="session")
def real_module_paths(hlo_dir: Path) -> list[Path]:
    """The real modules, sorted by path."""
    paths = sorted(hlo_dir.glob("*/*.txt"))
    assert paths, f"{hlo_dir} holds no */*.txt"
    return paths


@functools.cache
def _has_custom_calls(path: Path) -> bool:
    return " custom-call(" in path.read_text()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for `real_module_path` once for each real module."""
    if "real_module_path" not in metafunc.fixturenames:
        return
    folder = _hlo_dir()
    paths = sorted(folder.glob("*/*.txt")) if folder else []
    marker = metafunc.definition.get_closest_marker("custom_calls")
    if marker is not None:
        (wanted,) = marker.args
        paths = [path for path in paths if _has_custom_calls(path) == wanted]
    metafunc.parametrize(
        "real_module_path",
        paths or [None],
        ids=[f"{path.parent.name}/{path.stem}" for path in paths] or ["absent"],
        indirect=True,
    )


@functools.cache
def _instruction_count(path: Path) -> int:
    return HloModule.from_file(path).instruction_count


@pytest.fixture
def real_module_path(request: pytest.FixtureRequest) -> Path:
    """One real module; the test runs for each.

    The marker `max_instructions(N)` skips it on larger modules.
    """
    _needed_hlo_dir()
    path: Path | None = request.param
    if path is None:
        pytest.skip("no real module of this kind in the folder")
    marker = request.node.get_closest_marker("max_instructions")
    if marker is None or request.config.getoption("all_sizes"):
        return path
    (limit,) = marker.args
    if _instruction_count(path) > limit:
        pytest.skip(f"real modules above {limit} instructions; --all-sizes runs them")
    return path


@pytest.fixture
def max_map_count() -> int:
    """How many memory maps the system allows a process, where it can have as many."""
    count = int(Path("/proc/sys/vm/max_map_count").read_text())
    if count > _MAX_MAPS:
        pytest.skip(f"the system allows {count} memory maps, too many to use up")
    return count


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
    # Without environments and builds, whose hundred thousand files it would look at.
    source = folder / "source"
    left_out = shutil.ignore_patterns(".venv*", ".git", "build", "runs", ".*_cache")
    shutil.copytree(ROOT, source, ignore=left_out, symlinks=True)
    _python(
        "-c",
        "import os, sys; from scikit_build_core.build import build_sdist;"
        "os.chdir(sys.argv[2]); build_sdist(sys.argv[1])",
        *(str(folder), str(source)),
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
        child = run_python("-c", code, env=env, timeout=timeout)
        assert child.returncode == exit_code, (
            f"the child ended with {child.returncode}, not {exit_code}\n"
            f"stdout:\n{child.stdout}\nstderr:\n{child.stderr}"
        )
        return child

    return run
