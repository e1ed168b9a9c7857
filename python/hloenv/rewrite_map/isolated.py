# SPDX-License-Identifier: Apache-2.0
"""Maps programs in child processes: a crash of XLA costs one rewrite its row."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..hlo.module import HloModule, read_trusted
from ..process.forkserver import TIMEOUT, Job, Outcome, Pool
from .mapping import Found, Reference, Together, map_here
from .rows import ProgramMap, RewriteRow
from .settings import MapSettings

_MAX_CRASHES = 20


def map_program(
    module: HloModule,
    settings: MapSettings | None = None,
    *,
    program: str = "",
    inputs: Sequence[Any] | None = None,
    known: ProgramMap | None = None,
) -> ProgramMap:
    """The worth of each rewrite that XLA makes on a program.

    XLA runs in a child process. If it crashes, or takes too long, the rewrite that was
    being tried has the error, and the others are tried in another process.

    Args:
        module: at the start of XLA's pipeline.
        settings: limits.
        program: its name; the module's by default.
        inputs: one array for each flat leaf of the parameters; random ones by default.
        known: an earlier map of the program, which is continued.

    Returns:
        The map; its `error` says why a program has none.
    """
    settings = settings or MapSettings()
    found = ProgramMap(program or module.name)
    if known is not None:
        found = replace(known, rows=list(known.rows), error="")
    begin = time.monotonic()
    with Pool(workers=1) as pool:
        for _ in range(_MAX_CRASHES):
            left_s = settings.seconds - (time.monotonic() - begin)
            arguments = (module.to_bytes(), settings, inputs, found.rows, left_s)
            outcome = pool.run(
                Job(
                    f"{__name__}:_in_child",
                    arguments,
                    timeout_s=settings.timeout_s,
                    is_timed_by_value=True,
                )
            )
            for each in outcome.values:
                _add(found, each)
            if not outcome.error or not _skip_failed(found, outcome):
                break
    found.seconds += time.monotonic() - begin
    return found


def _in_child(
    data: bytes,
    settings: MapSettings,
    inputs: Sequence[Any] | None,
    known: list[RewriteRow],
    seconds: float,
) -> Iterator[Found]:
    yield from map_here(
        read_trusted(data), settings, inputs=inputs, known=known, seconds=seconds
    )


def _add(found: ProgramMap, value: Found) -> None:
    if isinstance(value, Reference):
        found.reference_s = value.seconds
        found.num_rewrites = value.num_rewrites
    elif isinstance(value, Together):
        found.together_s = value.seconds
        found.together, found.together_low, found.together_high = value.worth
        found.together_error = value.error
    else:
        rows = {row.identity: row for row in found.rows}
        rows[value.identity] = value
        found.rows = list(rows.values())


def _skip_failed(found: ProgramMap, outcome: Outcome) -> bool:
    """Records why the process ended; whether another one can go on."""
    reason = outcome.error.strip().splitlines()[-1]
    if outcome.error == TIMEOUT:
        reason = "the time limit of one rewrite"
    for row in found.rows:
        if row.identity == outcome.started:
            row.error = reason
            return math.isnan(row.worth)
    found.error = reason
    return False
