# SPDX-License-Identifier: Apache-2.0
"""The version of the code: a hash of its sources, and its commit."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import _native
from ..fuzz.versions import is_stale, without_comments, without_docstrings

# Packages and files of python/hloenv that do not affect results.
_EXCLUDED_FOLDERS = ("cli", "dataset", "explorer", "fuzz", "jax", "tune")
# Of rewrite_map, policies use the rest.
_MAPPING = (
    *("accepted", "ablation", "extract", "isolated", "jax_text", "mapping"),
    *("reproducer", "rounds", "settings"),
)
_EXCLUDED_FILES = frozenset(
    {
        *("bench/report.py", "bench/tables.py", "bench/plots.py", "bench/version.py"),
        *("bench/statistics.py", "bench/profile.py"),
        *("bench/profile_table.py", "cost/calibration.py", "graph/convert.py"),
        *("_markdown.py",),
        *("graph/dot.py", "graph/export.py", "graph/networkx.py", "graph/pyg.py"),
        *(f"rewrite_map/{name}.py" for name in _MAPPING),
        *("hlo/diff.py", "hlo/matching.py"),
        *("measurement/ray.py", "measurement/self_test.py"),
    }
)
# It draws the inputs.
_INCLUDED_FILES = frozenset({"dataset/reader.py"})
_MAX_NAMED_FILES = 8


@dataclass(frozen=True)
class Commit:
    """The commit of the sources, from git.

    Attributes:
        id: the first 12 digits of its hash; "unknown" outside a repository.
        changed: files that differ from it or are untracked.
    """

    id: str
    changed: tuple[str, ...] = ()

    @property
    def is_dirty(self) -> bool:
        """Whether files differ from the commit."""
        return bool(self.changed)

    @property
    def label(self) -> str:
        """The commit, with "+changes" if files differ from it."""
        return self.id + "+changes" * self.is_dirty

    def __str__(self) -> str:
        if not self.changed:
            return self.id
        named = ", ".join(self.changed[:_MAX_NAMED_FILES])
        rest = len(self.changed) - _MAX_NAMED_FILES
        more = f" and {rest} more" if rest > 0 else ""
        return f"{self.id}, **from a dirty tree**: {named}{more} differ from it"


def package() -> Path:
    """The folder of the package."""
    return Path(__file__).resolve().parents[1]


def source_root() -> Path:
    """The repository's folder, if the package is not installed without one."""
    return package().parents[1]


@functools.cache
def bench_version() -> str:
    """`code_version` of this package."""
    return code_version(source_root(), package())


def code_version(root: Path, python: Path | None = None) -> str:
    """A 12-digit hash of sources, checkpoints, and the versions of jax and jaxlib.

    The wheel's version is a part of `Machine.id`.

    Args:
        root: of the repository. Without csrc/ in it, the extension is hashed.
        python: folder of the package, by default that of the repository.
    """
    python = python or root / "python" / "hloenv"
    digest = hashlib.sha256()
    for path in sorted(_python_files(python)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(python).as_posix()
        digest.update(f"{name}\n{without_docstrings(tree)}\n".encode())
    # What policies and estimators have learned, and the compilers that are compared.
    for path in sorted(python.rglob("*.safetensors")):
        digest.update(f"{path.relative_to(python)}\n".encode() + path.read_bytes())
    for name in ("jax", "jaxlib"):
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}\n".encode())
    native = sorted([*(root / "csrc").rglob("*.h"), *(root / "csrc").rglob("*.cc")])
    for path in native:
        text = without_comments(path.read_text(encoding="utf-8"))
        digest.update(f"{path.relative_to(root)}\n{text}\n".encode())
    if not native:
        digest.update(Path(_native.core.__file__).read_bytes())
    return digest.hexdigest()[:12]


def _python_files(python: Path) -> Iterator[Path]:
    for path in python.rglob("*.py"):
        name = path.relative_to(python).as_posix()
        is_excluded = name.split("/")[0] in _EXCLUDED_FOLDERS or name in _EXCLUDED_FILES
        if not is_excluded or name in _INCLUDED_FILES:
            yield path


def commit_of(root: Path) -> Commit:
    """The commit of a repository, and the files that differ from it."""
    try:
        head = git_output(root, "rev-parse", "--short=12", "HEAD").strip()
        status = git_output(root, "status", "--porcelain", "--untracked-files=normal")
    except (OSError, subprocess.CalledProcessError):
        return Commit("unknown")
    return Commit(head, tuple(sorted(line[3:] for line in status.splitlines())))


def is_extension_stale(root: Path) -> bool:
    """Whether the extension is older than one of its sources."""
    return is_stale(root, Path(_native.core.__file__))


def git_output(root: Path, *arguments: str) -> str:
    """What git prints.

    Raises:
        OSError: this is not the root of a repository, or there is no git.
        CalledProcessError: git fails.
    """
    # A package inside another repository is not part of it.
    top = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--show-toplevel"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    if Path(top).resolve() != root.resolve():
        raise OSError(f"{root} is not a git repository")
    return subprocess.run(
        ["git", "-C", str(root), *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
