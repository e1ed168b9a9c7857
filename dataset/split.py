# SPDX-License-Identifier: Apache-2.0
"""Train, validation and test: by repository, never by module.

A repository's split is a hash of its URL, so that a source that comes or goes moves no
other one. The exception is `unseen`, a second test split: the manifest says which
sources are in it.
"""

from __future__ import annotations

import hashlib

SPLITS = ("train", "validation", "test")
UNSEEN = "unseen"
# One file of the dataset for each.
FILES = (*SPLITS, UNSEEN)
SEED = "hloenv-1"
# Shares of the repositories.
TRAIN, VALIDATION = 0.7, 0.1


def canonical(repository: str) -> str:
    """A repository's URL in one spelling: "github.com/google/flax"."""
    _, _, rest = repository.rpartition("://")
    return rest.rstrip("/").removesuffix(".git").lower()


def split_of(repository: str, *, seed: str = SEED) -> str:
    """The split of all modules of a repository."""
    name = f"{seed}:{canonical(repository)}"
    digest = hashlib.sha256(name.encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < TRAIN:
        return "train"
    return "validation" if share < TRAIN + VALIDATION else "test"
