# SPDX-License-Identifier: Apache-2.0
"""What a tuning leaves for `hloenv.jit` in other processes."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..jax.artefact import Tuned
from ..jax.kept import keep_tuned, recall_tuned
from .options import TuneOptions
from .program import Program


def keep(
    program: Program,
    entry: Tuned,
    options: TuneOptions,
    *,
    is_whole: bool,
    is_still_faster: Callable[[Tuned], bool],
) -> tuple[Tuned, str]:
    """Keeps an entry for other processes, where it is to replace an earlier one.

    A search that was cut short, or had fewer stages, may have missed what an earlier
    one has found; so may a short one, or one in another mode, whose result replaces a
    faster one only where that is not so fast any more. Where nothing faster is kept, an
    identity is kept too, so that a run as tuned says that it was tuned.

    Args:
        program: what was tuned.
        entry: its result.
        options: of the tuning.
        is_whole: whether the search could find everything.
        is_still_faster: measures an earlier entry again.

    Returns:
        The result of the tuning: the entry, or the kept one where that is faster and
        the entry is the identity; and why the entry is not kept; "" if it is, or there
        is nothing to say.
    """
    if not options.keep:
        return entry, ""
    here = len(os.sched_getaffinity(0))
    if program.check is None and options.cores != here:
        # A function is compared in this process, with all of its cores.
        return entry, (
            f"it is not kept for other processes: it was measured with "
            f"{options.cores} cores, and this process has {here}"
        )
    kept = recall_tuned(program.key)
    is_faster = not entry.is_identity and (
        kept is not None and entry.speedup >= kept.speedup
    )
    if kept is None or kept.is_identity or is_faster:
        is_replaced = True
    elif not is_whole:
        is_replaced = False
    elif is_still_faster(kept):
        words = (
            f"hloenv.jit keeps what an earlier tuning has found ({kept.label}), which "
            "was measured again and is faster"
        )
        if entry.is_identity:
            return kept, f"{words}: it is the result of this one, too"
        return entry, words
    else:
        is_replaced = True
    return entry, keep_tuned(program.key, entry) if is_replaced else ""


def is_kept(program: Program) -> bool:
    """Whether other processes find what makes a program faster."""
    kept = recall_tuned(program.key)
    return kept is not None and not kept.is_identity
