# SPDX-License-Identifier: Apache-2.0
"""Installs a source at its pin in its own virtual environment.

uv is used if it is available, because environments share its installed packages;
otherwise venv and pip. A lock in `dataset/locks` pins all dependencies of the project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import sandbox
from .manifest import Source

INSTALL_TIMEOUT_S = 1800
_INSTALL_MEMORY = 8 << 30


class FetchError(RuntimeError):
    """A source could not be cloned or installed."""


def _run(
    *command: str | Path, log: Path, cwd: Path | None = None, timeout: float
) -> None:
    words = [str(word) for word in command]
    with log.open("ab") as output:
        output.write(f"$ {' '.join(words)}\n".encode())
    ending = sandbox.run(
        words,
        log,
        cwd=cwd or log.parent,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "PYTHONPATH": ""},
        timeout_s=timeout,
        max_memory_bytes=_INSTALL_MEMORY,
        has_network=True,
    )
    if ending.status != "done":
        raise FetchError(f"{' '.join(words[:4])}: {ending.status}: {ending.detail}")


def checkout(source: Source, folder: Path, *, log: Path) -> Path:
    """Clones the repository and checks out the pin; copies a path.

    Raises:
        FetchError: it cannot be cloned, or has no such commit or tag.
    """
    target = folder / "checkout"
    if target.exists():
        shutil.rmtree(target)
    if source.path:
        origin = source.folder / source.path
        if not origin.is_dir():
            raise FetchError(f"there is no checkout at {origin}")
        ignored = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info")
        shutil.copytree(origin, target, ignore=ignored)
        return target
    timeout = INSTALL_TIMEOUT_S
    clone = ("git", "clone", "--quiet", "--no-checkout", source.repository, target)
    _run(*clone, log=log, timeout=timeout)
    commit = f"{source.commit}^{{commit}}"
    pin = ("git", "checkout", "--quiet", "--detach", commit)
    _run(*pin, log=log, cwd=target, timeout=timeout)
    return target


def install(
    source: Source,
    folder: Path,
    *,
    origin: str,
    log: Path,
    site_packages: Path | None = None,
) -> tuple[Path, Path | None]:
    """Makes `folder`/venv with the source, the pinned jax and its requirements.

    Args:
        source: what to install.
        folder: the source's folder in the build.
        origin: "pypi", "git" or "path".
        log: file for the output of git and pip.
        site_packages: packages of another environment to use instead of installing any;
            for tests without a network.

    Returns:
        The environment's Python, and the checkout if there is one.

    Raises:
        FetchError: with the last lines of the output of git or pip.
    """
    needs_checkout = origin != "pypi" or bool(source.scripts)
    tree = checkout(source, folder, log=log) if needs_checkout else None
    venv = folder / "venv"
    if venv.exists():
        shutil.rmtree(venv)
    uv = _find_uv()
    python = venv / "bin" / "python"
    if uv and site_packages is None:
        make = (uv, "venv", "--quiet", "--python", sys.executable, venv)
        pip: tuple[str | Path, ...] = (uv, "pip", "install", "--python", python)
    else:
        bare = ("--without-pip",) if site_packages is not None else ()
        make = (sys.executable, "-P", "-m", "venv", *bare, venv)
        pip = (python, "-P", "-m", "pip", "install", "--disable-pip-version-check")
    _run(*make, log=log, timeout=INSTALL_TIMEOUT_S)
    if site_packages is not None:
        _use_site_packages(python, site_packages, tree, source)
        return python, tree
    wanted = [f"jax=={source.jax}", f"jaxlib=={source.jax}", *source.requires]
    if source.is_installed:
        wanted.append(str(tree / source.subdirectory) if tree else source.pypi)
    lock = lock_path(source)
    constraints = ("--constraint", lock) if lock.is_file() else ()
    links = ("--find-links", os.environ["PIP_FIND_LINKS"])
    find = links if uv and os.environ.get("PIP_FIND_LINKS") else ()
    _run(*pip, *constraints, *find, *wanted, log=log, timeout=INSTALL_TIMEOUT_S)
    return python, tree


def lock_path(source: Source) -> Path:
    """Returns the path of the lock file of a source."""
    return source.folder / "locks" / f"{source.name}.txt"


def freeze(python: Path) -> list[str]:
    """Returns the pinned packages of an environment that have a version."""
    code = (
        "from importlib.metadata import distributions as d; "
        "print(*{f'{x.name}=={x.version}' for x in d()}, sep='\\n')"
    )
    done = subprocess.run(
        [python, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = sorted(done.stdout.split(), key=str.lower)
    return [line for line in lines if not line.startswith(("pip==", "setuptools=="))]


def _find_uv() -> str | None:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.is_file() else shutil.which("uv")


def _use_site_packages(
    python: Path, packages: Path, tree: Path | None, source: Source
) -> None:
    paths = [str(packages)]
    if tree is not None:
        root = tree / source.subdirectory
        paths += [str(root / "src") if (root / "src").is_dir() else str(root)]
    (site,) = (python.parent.parent / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join(paths) + "\n")
