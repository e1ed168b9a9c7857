# SPDX-License-Identifier: Apache-2.0
"""Splits by repository, never by module.

A repository's split is a hash of its URL, so it does not depend on other sources. The
exception is `unseen`, a second test split, whose sources are marked in the manifest.
"""

from __future__ import annotations

import hashlib

SPLITS = ("train", "validation", "test")
UNSEEN = "unseen"
# The dataset has one file for each.
FILES = (*SPLITS, UNSEEN)
SEED = "hloenv-1"
# Fractions of the repositories.
TRAIN, VALIDATION = 0.7, 0.1


def canonical(repository: str) -> str:
    """Normalizes a repository's URL: "github.com/google/flax"."""
    _, _, rest = repository.rpartition("://")
    return rest.rstrip("/").removesuffix(".git").lower()


def split_of(repository: str, *, seed: str = SEED) -> str:
    """Returns the split of a repository."""
    name = f"{seed}:{canonical(repository)}"
    digest = hashlib.sha256(name.encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < TRAIN:
        return "train"
    return "validation" if share < TRAIN + VALIDATION else "test"
