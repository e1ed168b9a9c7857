# SPDX-License-Identifier: Apache-2.0
"""What checks of the invariants found, kept in files that any number of runs share.

One JSON line for each cell, in one file for each run at a time (shard), so that runs
beside each other never write to the same file. A line that was cut off is ignored.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Kind of check, fingerprint, variant, passes.
Key = tuple[str, str, str, str]

# What a check depends on: folders and files of csrc/ and of python/hloenv/.
_NATIVE = ("hlo", "passes", "rewrite", "support")
_CHECKS = {
    "structure": ((), ("fuzz/invariants.py", "fuzz/matrix.py")),
    "default": ((), ("fuzz/matrix.py",)),
    "values": (
        ("runtime/interpreter.cc",),
        (
            *("fuzz/comparison.py", "fuzz/examples.py", "fuzz/expected.py"),
            *("fuzz/matrix.py", "fuzz/values.py", "interpreter.py", "widen.py"),
        ),
    ),
    "compiled": (
        ("runtime/executable.cc",),
        ("fuzz/compiled.py", "fuzz/examples.py", "fuzz/matrix.py", "executable.py"),
    ),
}
_PYTHON = ("decided.py", "env.py", "passes.py", "place.py", "rewrite.py")

_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*')


@dataclass(frozen=True)
class Row:
    """One cell that was checked.

    Attributes:
        kind: "structure", "values", "compiled" or "default".
        fingerprint: of the module.
        module: its name.
        variant: where it was captured.
        passes: names joined by ",".
        version: of the code that was checked, see `code_version`.
        num_alternatives: of the capture.
        num_checks: comparisons that were made; 0 if none could be.
        violations: what is broken.
        skipped: reasons for which something was not checked, and how often.
        whole: passes that were indivisible, with the reason.
    """

    kind: str
    fingerprint: str
    module: str
    variant: str
    passes: str
    version: str
    num_alternatives: int = 0
    num_checks: int = 0
    violations: tuple[str, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    whole: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.kind, self.fingerprint, self.variant, self.passes

    @property
    def state(self) -> str:
        """Whether it "failed", was "checked", "partly" so, or "skipped"."""
        if self.violations:
            return "failed"
        if not self.num_checks:
            return "skipped"
        return "partly" if self.skipped else "checked"

    def to_json(self) -> str:
        """One line."""
        data = {key: value for key, value in asdict(self).items() if value}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Reads what `to_json` wrote."""
        data: dict[str, Any] = json.loads(line)
        data["violations"] = tuple(data.get("violations", ()))
        data["whole"] = tuple((name, why) for name, why in data.get("whole", ()))
        return cls(**data)


class Results:
    """The rows of a folder, and a file to add to.

    Attributes:
        rows: the latest of each cell, of the versions asked for.
    """

    def __init__(self, folder: Path, versions: dict[str, Collection[str]]) -> None:
        """Reads all files.

        Args:
            folder: made if it is not there.
            versions: those whose rows count, by kind.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._versions = versions
        self.rows: dict[Key, Row] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for row in _read(path):
                self._take(row)

    def _take(self, row: Row) -> None:
        if row.version in self._versions.get(row.kind, ()):
            self.rows[row.key] = row

    def add(self, rows: Iterable[Row], name: str) -> None:
        """Appends rows to the file of this name."""
        with (self._folder / f"{name}.jsonl").open("ab+") as file:
            # A run that was killed may have left half a line.
            file.seek(max(0, file.tell() - 1))
            if file.read(1) not in (b"", b"\n"):
                file.write(b"\n")
            for row in rows:
                self._take(row)
                file.write(row.to_json().encode() + b"\n")

    def __contains__(self, key: Key) -> bool:
        return key in self.rows


def _read(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield Row.from_json(line)
            except (TypeError, ValueError):
                continue


def code_version(root: Path, kind: str) -> str:
    """A hash of the sources that a kind of check depends on; blind to comments.

    Args:
        root: of the repository.
        kind: of check.
    """
    native, checks = _CHECKS[kind]
    csrc, package = root / "csrc", root / "python" / "hloenv"
    digest = hashlib.sha256()
    for path in sorted(_files(csrc, (*_NATIVE, *native))):
        text = _without_comments(path.read_text(encoding="utf-8"))
        digest.update(f"{path.relative_to(root)}\n{text}\n".encode())
    for name in sorted((*_PYTHON, *checks)):
        tree = ast.parse((package / name).read_text(encoding="utf-8"))
        digest.update(f"{name}\n{_without_docstrings(tree)}\n".encode())
    return digest.hexdigest()[:12]


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = folder / name
        yield from [path] if path.is_file() else [*path.glob("*.h"), *path.glob("*.cc")]


def _without_comments(text: str) -> str:
    return " ".join(_STRING_OR_COMMENT.sub(r"\1", text).split())


def _without_docstrings(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
            and isinstance(body[0].value.value, str)
        ):
            body[0].value.value = ""
    return ast.dump(tree)


def is_stale(root: Path, extension: Path) -> bool:
    """Whether a source of the extension is newer than the extension."""
    built = extension.stat().st_mtime
    sources = [*(root / "csrc").rglob("*.h"), *(root / "csrc").rglob("*.cc")]
    return any(path.stat().st_mtime > built for path in sources)
