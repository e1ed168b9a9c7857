# SPDX-License-Identifier: Apache-2.0
"""Tuned recipes that are kept for other processes, where `hloenv.jit` finds them.

One artefact of one entry for each module, machine, number of cores and versions, in the
folder of the store. A file that cannot be read, is damaged, or may be another user's
counts as absent.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import write_own
from ..errors import ArtefactError
from ..measurement.store import default_path
from .artefact import Artefact, Tuned
from .verdicts import Verdict, key_of

# Programs whose results are kept: some megabytes of artefacts and journals.
_MAX_KEPT = 1000
_SUFFIXES = (".json", ".journal")
# Of what rules have decided over what was tuned.
_MIN_GAIN = 1.02


def kept_key(fingerprint: str, compiling: Mapping[str, Any], *, donates: bool) -> str:
    """Identifies a module, the machine and versions.

    Args:
        fingerprint: of the module as jax lowers it, without donations.
        compiling: options of the compiler that the user has given, as text.
        donates: whether the function donates arguments.
    """
    return key_of(fingerprint, 0.0, {"kind": "tuned", "donates": donates, **compiling})


def recall_tuned(key: str) -> Tuned | None:
    """What was tuned in an earlier process; None if nothing was."""
    # RuntimeError: there is no home folder.
    with contextlib.suppress(OSError, ArtefactError, RuntimeError):
        entries = Artefact.load(kept_path(key), is_own=True).entries
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
        write_own(path, Artefact((entry,)).text)
    except (OSError, RuntimeError) as error:
        return f"it could not be kept for other processes: {error}"
    with contextlib.suppress(OSError):
        _forget_oldest(path.parent)
    return ""


def _forget_oldest(folder: Path) -> None:
    """Removes files of the programs that were not tuned for longest, if there are many.

    With the artefact of a program, the journal of its measurements.
    """
    files: dict[str, list[Path]] = {}
    ages: dict[str, float] = {}
    for path in folder.iterdir():
        # Not drafts, whose names begin with a point.
        if path.suffix not in _SUFFIXES or path.name.startswith("."):
            continue
        with contextlib.suppress(OSError):  # another process removes it
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                files.setdefault(path.stem, []).append(path)
                ages[path.stem] = max(ages.get(path.stem, 0.0), found.st_mtime)
    for stem in sorted(ages, key=lambda each: ages[each])[:-_MAX_KEPT]:
        for path in files[stem]:
            with contextlib.suppress(OSError):
                path.unlink()


def is_faster(verdict: Verdict | None, tuned: Tuned) -> bool:
    """Whether what was decided by rules in another process gains more."""
    if verdict is None or not verdict.attempt or tuned.is_identity:
        return False
    return (verdict.speedup or 0.0) > _MIN_GAIN * tuned.speedup


def kept_path(key: str) -> Path:
    """The file of a key."""
    return default_path().parent / "tuned" / f"{key}.json"
