# SPDX-License-Identifier: Apache-2.0
"""The manifest of projects, with pins and licences.

One `[[source]]` table for each project; `dataset/README.md` explains the keys.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from . import split

FAMILIES = (
    "audio",
    "bayesian",
    "generative",
    "graph",
    "language",
    "molecular",
    "optimization",
    "physics",
    "privacy",
    "reinforcement",
    "robotics",
    "solvers",
    "spiking",
    "vision",
)

# Reserved for evaluation: their own code is never run for the dataset. They may be
# dependencies of other projects.
RESERVED = frozenset(
    (
        "blackjax",
        "dm-pix",
        "dynamax",
        "e3nn-jax",
        "evosax",
        "gymnax",
        "jax-cfd",
        "jax-cosmo",
        "jraph",
        "jumanji",
        "mujoco-mjx",
        "netket",
        "neural-tangents",
        "optimistix",
        "penzai",
        "pgx",
        "s2fft",
        "tinygp",
    )
)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_PIN = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[A-Za-z0-9.+!]+\Z")
_VERIFIED = ("", "pypi", "git", "path")


class ManifestError(ValueError):
    """The manifest is invalid."""


@dataclass(frozen=True)
class Source:
    """One project.

    Attributes:
        name: name in the dataset, and of its folder in a build.
        repository: URL of the project's git repository; it determines the split.
        commit: the commit or tag to build from, for git.
        pypi: "project==version" of the same state on PyPI.
        path: a local checkout, absolute or relative to the manifest.
        subdirectory: folder of the installable project in the repository.
        licence: SPDX expression.
        family: one of `FAMILIES`.
        jax: version of jax and jaxlib, pinned.
        requires: further pip requirements.
        entries: files of `dataset/entries`, run one after the other.
        real_entries: the same, for programs at real extents.
        scripts: command lines run in the checkout as they are, such as
            "examples/mnist.py --steps 2" or "-m pytest tests/test_layers.py";
            all functions that they jit are harvested. They need git or a path.
        split: "unseen" for the second test split; "" leaves it to the repository's
            hash.
        is_installed: whether the project itself is installed; False for repositories
            that are not packages, which then only get `requires`.
        verified: the origins for which a build was run at this pin.
        timeout_s: limit for each entry and each script.
        max_memory_gb: limit for the harvesting process and its children.
    """

    name: str
    repository: str
    licence: str
    family: str
    jax: str
    commit: str = ""
    pypi: str = ""
    path: str = ""
    subdirectory: str = ""
    requires: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    real_entries: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    split: str = ""
    is_installed: bool = True
    verified: str = ""
    timeout_s: float = 1200.0
    max_memory_gb: float = 8.0
    folder: Path = field(default=Path(), compare=False)

    @property
    def origin(self) -> str:
        """The default origin."""
        return "path" if self.path else "pypi" if self.pypi else "git"

    @property
    def version(self) -> str:
        """The pinned version; for git the commit, "" for a local checkout."""
        return self.pypi.partition("==")[2] or self.commit

    @property
    def entry_paths(self) -> list[Path]:
        """All entry files, which are in `entries/` next to the manifest."""
        names = (*self.entries, *self.real_entries)
        return [self.folder / "entries" / name for name in names]

    def extent_of(self, entry: str) -> str:
        """Returns the extent of modules from an entry file, by its name."""
        is_real = f"{entry}.py" in self.real_entries
        return "real" if is_real else "small"


def load(path: Path) -> list[Source]:
    """Reads and checks a manifest.

    Returns:
        The sources, sorted by name.

    Raises:
        ManifestError: not TOML, or an invalid source; names source and key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{path} is not TOML: {error}") from None
    unknown = set(content) - {"source", "defaults"}
    if unknown or not isinstance(content.get("source"), list):
        raise ManifestError(
            f"{path} has to hold [[source]] tables, and at most [defaults] beside "
            f"them; it holds {sorted(content)}"
        )
    defaults = content.get("defaults", {})
    sources = [_source({**defaults, **table}, path) for table in content["source"]]
    seen: set[str] = set()
    for source in sources:
        if source.name in seen:
            raise ManifestError(f"{path}: two sources are called {source.name!r}")
        seen.add(source.name)
    return sorted(sources, key=lambda source: source.name)


def _source(table: dict[str, Any], path: Path) -> Source:
    where = f"{path}: source {table.get('name', '?')!r}"
    kinds = {each.name: str(each.type) for each in fields(Source)}
    del kinds["folder"]
    for key, value in table.items():
        if key not in kinds:
            raise ManifestError(f"{where} has the unknown key {key!r}: {sorted(kinds)}")
        if not _fits(value, kinds[key]):
            raise ManifestError(f"{where}: {key} = {value!r} is not a {kinds[key]}")
    for key in ("name", "repository", "licence", "family", "jax"):
        if not table.get(key):
            raise ManifestError(f"{where} has no {key!r}")
    values = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
    }
    source = Source(**values, folder=path.parent)
    problem = _problem(source)
    if problem:
        raise ManifestError(f"{where}: {problem}")
    return source


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("tuple"):
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value).__name__ == kind


def _problem(source: Source) -> str:
    """Returns the first error of a source, or ""."""
    repository = source.repository.rstrip("/").removesuffix(".git")
    names = {source.name, repository.rpartition("/")[2], source.pypi.split("==")[0]}
    reserved = {name.lower().replace("_", "-") for name in names} & RESERVED
    checks = [
        (not _NAME.match(source.name), "a name is lower case letters, digits, ._-"),
        (reserved, f"{sorted(reserved)} is reserved for evaluation: see RESERVED"),
        (
            source.family not in FAMILIES,
            f"family {source.family!r} is none of {', '.join(FAMILIES)}",
        ),
        (
            source.pypi and not _PIN.match(source.pypi),
            f"pypi = {source.pypi!r} has to be an exact pin: project==version",
        ),
        (
            not (source.pypi or source.commit or source.path),
            "it needs a pin: pypi, commit or path",
        ),
        (
            not (source.entries or source.real_entries or source.scripts),
            "it runs nothing: give entries, real_entries or scripts",
        ),
        (
            set(source.entries) & set(source.real_entries),
            "an entry is in entries or in real_entries, not in both",
        ),
        (
            source.split not in ("", split.UNSEEN),
            f"split = {source.split!r} is neither {split.UNSEEN!r} nor left out",
        ),
        (
            source.scripts and source.origin == "pypi" and not source.commit,
            "scripts need a checkout: give a commit or a path",
        ),
        (
            source.verified not in _VERIFIED,
            f"verified = {source.verified!r} is none of {_VERIFIED}",
        ),
    ]
    for is_wrong, text in checks:
        if is_wrong:
            return text
    for entry in source.entry_paths:
        if not entry.is_file():
            return f"there is no entry file {entry}"
    return ""
