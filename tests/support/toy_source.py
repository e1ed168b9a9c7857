# SPDX-License-Identifier: Apache-2.0
"""A toy project in a bare git repository, and a manifest of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = '''\
"""Toy models."""

import jax.numpy as jnp


def affine(w, x):
    return jnp.tanh(w @ x) + 1.0


def again(w, x):
    return jnp.tanh(w @ x) + 1.0
'''
_SCRIPT = """\
import sys

import jax
import jax.numpy as jnp

import toymodels

assert sys.argv[1:] == ["--steps", "2"], sys.argv
step = jax.jit(toymodels.affine)
for _ in range(2):
    step(jnp.ones((7, 7)), jnp.ones(7)).block_until_ready()
"""
_ENTRY = '''\
"""Toy entry."""

import jax
import jax.numpy as jnp
import toymodels
from hloenv_cases import case, floats, ints


@case(size=[3, 5])
def toy(lower, size):
    w, x = floats(size, size), floats(size)
    lower("affine", toymodels.affine, w, x)
    lower("again", toymodels.again, w, x)
    lower("take", lambda x, i: jnp.take(x, i), x, ints(size, 4))
    lower("broken", lambda x: x @ jnp.ones(size + 1), x)
    lower.loss(lambda w, x: jnp.sum(toymodels.affine(w, x)), w, x)


@case()
def refused(lower):
    lower("callback", lambda x: jax.pure_callback(lambda y: y, x, x), floats(3))
    lower("idle", lambda x: x, floats(3))
'''


@dataclass(frozen=True)
class Toy:
    """The toy project.

    Attributes:
        repository: path of the bare repository.
        commit: of its only commit, which has the tag v1.
        manifest: path of a manifest with the source `toy`.
    """

    repository: Path
    commit: str
    manifest: Path

    @property
    def entry(self) -> Path:
        """The entry file of the source `toy`."""
        return self.manifest.parent / "entries" / "toy.py"

    def write(self, *tables: str) -> Path:
        """Replaces the manifest by these `[[source]]` tables' lines."""
        text = "".join(f"[[source]]\n{table}\n" for table in tables)
        self.manifest.write_text(text, encoding="utf-8")
        return self.manifest

    def table(self, **changes: str) -> str:
        """Lines of a source; values are TOML, "" leaves a key out."""
        values = {
            "name": '"toy"',
            "repository": f'"{self.repository}"',
            "commit": f'"{self.commit}"',
            "licence": '"MIT"',
            "family": '"vision"',
            "jax": '"0.0.0"',
            "entries": '["toy.py"]',
        } | changes
        return "".join(f"{key} = {value}\n" for key, value in values.items() if value)


def make_toy(folder: Path) -> Toy:
    """Writes the project and commits it into a bare repository."""
    tree = folder / "tree"
    (tree / "src" / "toymodels").mkdir(parents=True)
    (tree / "examples").mkdir()
    (tree / "src" / "toymodels" / "__init__.py").write_text(_PACKAGE)
    (tree / "examples" / "train.py").write_text(_SCRIPT)
    bare = folder / "toymodels.git"

    def git(*words: str) -> str:
        who = ("-c", "user.name=toy", "-c", "user.email=toy@example.org")
        done = subprocess.run(
            ["git", *who, *words], cwd=tree, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "toy")
    git("tag", "v1")
    git("clone", "--quiet", "--bare", str(tree), str(bare))
    entries = folder / "manifest" / "entries"
    entries.mkdir(parents=True)
    (entries / "toy.py").write_text(_ENTRY)
    toy = Toy(bare, git("rev-parse", "HEAD"), folder / "manifest" / "manifest.toml")
    toy.write(toy.table())
    return toy
