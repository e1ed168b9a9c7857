# SPDX-License-Identifier: Apache-2.0
"""Tuned recipes that are kept for other processes, where `hloenv.jit` finds them.

One artefact of one entry for each module, machine, number of cores and versions, in the
folder of the store. A file that cannot be read, or is damaged, counts as absent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ArtefactError
from ..hlo.module import HloModule
from ..measurement.store import default_path
from .artefact import Artefact, Tuned
from .verdicts import key_of


def kept_key(module: HloModule, compiling: Mapping[str, Any]) -> str:
    """Identifies a module, the machine and versions.

    Args:
        module: as jax lowers it, without donations.
        compiling: options of the compiler that the user has given, as text.
    """
    return key_of(module, 0.0, {"kind": "tuned", **compiling})


def recall_tuned(key: str) -> Tuned | None:
    """What was tuned in an earlier process; None if nothing was."""
    # RuntimeError: there is no home folder.
    with contextlib.suppress(OSError, ArtefactError, RuntimeError):
        entries = Artefact.load(kept_path(key)).entries
        if len(entries) == 1 and not entries[0].mismatch():
            return entries[0]
    return None


def keep_tuned(key: str, entry: Tuned) -> str:
    """Keeps an entry for other processes.

    Returns:
        Why it could not be kept, such as a full disk; "" if it was.
    """
    try:
        path = kept_path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Artefact((entry,)).save(path)
    except (OSError, RuntimeError) as error:
        return f"it could not be kept for other processes: {error}"
    return ""


def kept_path(key: str) -> Path:
    """The file of a key."""
    return default_path().parent / "tuned" / f"{key}.json"
