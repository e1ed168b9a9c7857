# SPDX-License-Identifier: Apache-2.0
"""Which code made a result: a hash of its sources, and its commit."""

from __future__ import annotations

import ast
import functools
import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import _native
from ..fuzz.results import is_stale, without_comments, without_docstrings

# Of python/hloenv: what only shows results, or has no part in them.
_SHOWS = ("cli", "dataset", "fuzz", "jax")
_ALSO_SHOWS = frozenset(
    {
        *("bench/report.py", "bench/tables.py", "bench/plots.py", "bench/ablation.py"),
        *("bench/statistics.py", "bench/profile.py", "bench/version.py"),
        *("bench/profile_table.py", "cost/calibration.py", "graph/convert.py"),
        *("graph/dot.py", "graph/export.py", "graph/networkx.py", "graph/pyg.py"),
        *("hlo/diff.py", "measurement/ray.py", "measurement/self_test.py"),
    }
)
_NAMED_FILES = 8


@dataclass(frozen=True)
class Commit:
    """What git says of the sources.

    Attributes:
        id: of the commit, 12 digits; "unknown" outside a repository.
        changed: files that differ from it, or that it does not know.
    """

    id: str
    changed: tuple[str, ...] = ()

    @property
    def is_dirty(self) -> bool:
        """Whether the files are not those of the commit."""
        return bool(self.changed)

    @property
    def label(self) -> str:
        """The commit, with "+changes" where files differ from it."""
        return self.id + "+changes" * self.is_dirty

    def __str__(self) -> str:
        if not self.changed:
            return self.id
        named = ", ".join(self.changed[:_NAMED_FILES])
        rest = len(self.changed) - _NAMED_FILES
        more = f" and {rest} more" if rest > 0 else ""
        return f"{self.id}, **from a dirty tree**: {named}{more} differ from it"


def package() -> Path:
    """The folder of the package."""
    return Path(__file__).resolve().parents[1]


def source_root() -> Path:
    """Where the repository would be; the package may be installed without one."""
    return package().parents[1]


@functools.cache
def bench_version() -> str:
    """`code_version` of the package that runs."""
    return code_version(source_root(), package())


def code_version(root: Path, python: Path | None = None) -> str:
    """12 digits: a hash of the sources that results depend on, blind to comments.

    Args:
        root: of the repository. Where it has no csrc/, the extension itself counts.
        python: folder of the package, by default that of the repository.
    """
    python = python or root / "python" / "hloenv"
    digest = hashlib.sha256()
    for path in sorted(_python_files(python)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(python).as_posix()
        digest.update(f"{name}\n{without_docstrings(tree)}\n".encode())
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
        is_shown = name.split("/")[0] in _SHOWS or name in _ALSO_SHOWS
        if not is_shown:
            yield path


def commit_of(root: Path) -> Commit:
    """The commit of a repository's files, and what differs from it."""
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD").strip()
        status = _git(root, "status", "--porcelain", "--untracked-files=normal")
    except (OSError, subprocess.CalledProcessError):
        return Commit("unknown")
    return Commit(head, tuple(sorted(line[3:] for line in status.splitlines())))


def is_extension_stale(root: Path) -> bool:
    """Whether the extension is older than one of its sources."""
    return is_stale(root, Path(_native.core.__file__))


def _git(root: Path, *arguments: str) -> str:
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
