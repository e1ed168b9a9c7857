# SPDX-License-Identifier: Apache-2.0
"""Versions of the code that a check of invariants depends on.

A result of another version does not count: the check runs again. A candidate pass
depends on the rewrites that csrc/passes/proposals proposes; XLA's own passes do not, so
that their results outlive a new form or rule.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from .._native import core
from . import sources

# Dependencies of a check: these folders and files of csrc/, and of python/hloenv/ the
# code reached from its function in fuzz/matrix.py.
_NATIVE = (
    *("backend", "hlo", "passes", "rewrite", "support", "workarounds"),
    *("pipeline/skip_rules.cc", "pipeline/xla_pipeline.cc", "pipeline/xla_pipeline.h"),
    *("bindings/errors.cc", "bindings/bind_hlo.cc", "bindings/bind_passes.cc"),
    *("bindings/bind_pipeline.cc", "bindings/bind_rewrite.cc"),
)
# Rewrites that candidate passes propose.
_PROPOSALS = "passes/proposals"
FUNCTIONS = {
    "structure": "check_structure",
    "values": "check_values",
    "compiled": "check_compiled_values",
    "default": "check_default",
}
# Code that compiles, runs and evaluates modules.
_RUNS = ("runtime", "bindings/bind_runtime.cc", "bindings/bind_interpret.cc")
_ALSO_NATIVE = {
    "structure": (),
    # Compiles modules that the evaluator rejects.
    "values": _RUNS,
    "compiled": _RUNS,
    "default": (),
}
_NO_PART_NATIVE = ("kernels", "timing")
_ONLY_EVALUATES = ("interpreter", "bind_interpret")
# Not reached by the checks, although classes that they use name these files.
_NO_PART = (
    *("process/forkserver.py", "fuzz/generator/module.py", "_interrupt.py"),
    *("__init__.py", "graph/hlo_graph.py", "graph/validate.py"),
    *("jax/__init__.py", "jax/lowering.py"),
)

_RAW_STRING = r'R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"'
_QUOTED = r'"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\''
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"(?P<kept>{_RAW_STRING}|{_QUOTED})|{_COMMENT}|\s+", re.DOTALL)


class CodeVersions:
    """The versions of the current code.

    Attributes:
        by_kind: of the checks of XLA's own passes.
        of_candidates: of those in which a candidate pass takes part.
    """

    def __init__(
        self,
        by_kind: Mapping[str, str],
        of_candidates: Mapping[str, str] | None = None,
        candidates: Collection[str] = (),
    ) -> None:
        """Holds versions.

        Args:
            by_kind: version by kind of check.
            of_candidates: the same for candidate passes; as `by_kind` by default.
            candidates: names of the candidate passes.
        """
        self.by_kind = dict(by_kind)
        self.of_candidates = dict(by_kind if of_candidates is None else of_candidates)
        self._candidates = frozenset(candidates)

    @classmethod
    def of_sources(cls, root: Path, candidates: Collection[str]) -> CodeVersions:
        """Those of the sources of a checkout.

        Args:
            root: of the repository.
            candidates: names of the candidate passes.
        """
        return cls(
            {
                kind: code_version(root, kind, without_proposals=True)
                for kind in FUNCTIONS
            },
            {kind: code_version(root, kind) for kind in FUNCTIONS},
            candidates,
        )

    def of(self, kind: str, passes: str) -> str:
        """The version of a check.

        Args:
            kind: of check.
            passes: their names, joined by ",".

        Returns:
            It, or "" if there is no such kind.
        """
        is_xla = self._candidates.isdisjoint(passes.split(","))
        return (self.by_kind if is_xla else self.of_candidates).get(kind, "")

    def described(self, kinds: Iterable[str]) -> str:
        """The versions of some kinds of check, for a report."""
        return ", ".join(
            f"{kind} {self.by_kind[kind]}, of candidate passes "
            f"{self.of_candidates[kind]}"
            for kind in kinds
        )


def code_version(root: Path, kind: str, *, without_proposals: bool = False) -> str:
    """Hashes the sources that a kind of check depends on, and TensorFlow's version.

    The hash ignores comments, formatting, docstrings, annotations and file names.

    Args:
        root: root of the repository.
        kind: of check.
        without_proposals: whether only XLA's own passes are checked.
    """
    csrc, package = root / "csrc", root / "python" / "hloenv"
    digest = hashlib.sha256(f"{core.tensorflow_version}\n".encode())
    without = (*_NO_PART_NATIVE, *(_ONLY_EVALUATES if kind == "compiled" else ()))
    paths = set(_files(csrc, (*_NATIVE, *_ALSO_NATIVE[kind])))
    if without_proposals:
        paths -= set(_files(csrc, (_PROPOSALS,)))
    for text in sorted(
        without_comments(_INCLUDE.sub("", path.read_text(encoding="utf-8")))
        for path in paths
        if path.stem not in without
    ):
        digest.update(f"{text}\n".encode())
    found = sources.reached(
        package, "fuzz/matrix.py", FUNCTIONS[kind], without=_NO_PART
    )
    for text in sorted(
        f"{name.partition(':')[2]}\n{text}\n" for name, text in found.items() if text
    ):
        digest.update(text.encode())
    return digest.hexdigest()[:12]


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = folder / name
        yield from (
            [path] if path.is_file() else [*path.rglob("*.h"), *path.rglob("*.cc")]
        )


@functools.cache
def without_comments(text: str) -> str:
    """Removes comments and redundant white space from C++."""
    pieces = []
    for piece in re.split(r"(\0[^\0]*\0)", _TOKEN.sub(_marked, text)):
        if piece.startswith("\0"):
            pieces.append(piece.strip("\0"))
        else:
            piece = re.sub(r" +", " ", piece)
            pieces.append(re.sub(r" (?=[(){}\[\],;])|(?<=[(){}\[\],;]) ", "", piece))
    return "".join(pieces).strip()


def _marked(match: re.Match[str]) -> str:
    return f"\0{match['kept']}\0" if match["kept"] else " "


def without_docstrings(tree: ast.Module) -> str:
    """Returns Python code as text without docstrings."""
    for node in ast.walk(tree):
        sources.without_docstring(node)
    return sources.dump(tree)


def is_stale(root: Path, extension: Path) -> bool:
    """Whether a source of the extension is newer than the extension."""
    built = extension.stat().st_mtime
    sources = [*(root / "csrc").rglob("*.h"), *(root / "csrc").rglob("*.cc")]
    return any(path.stat().st_mtime > built for path in sources)
