# SPDX-License-Identifier: Apache-2.0
"""The rewrites that XLA's own pipeline makes on a module, equal ones together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._typing import Int64Array
from ..hlo.module import HloModule
from ..hlo.pipeline import list_stages, needed_passes, skip_rules
from ..process.cpu_affinity import as_if_on
from ..rewrite.alternatives import Alternatives
from ..rewrite.interception import LiveStage, intercept
from .changes import Change, Changes


@dataclass(frozen=True)
class AcceptedRewrite(Change):
    """A rewrite that XLA makes, at all places where it makes an equal one.

    Two rewrites are equal if they replace the same operation, with the same types and
    attributes, in the same way. `weight_s` is that of all of them.

    Attributes:
        identity: a hash of the original and its replacement.
        entries: that reject it, as in `hlo.decided`.
        pass_name: the pass that makes it.
        path: of its first run with this rewrite, as in `hloenv.list_stages`.
        path_occurrence: number of that run of the path, from 1.
        computation: where it is first made.
        original: the first instruction that it replaces.
        count: number of equal rewrites.
        lost: other rewrites of the same run that change nothing without it.
        stopped: passes that do not run on a module without it.
        source: JAX operation and source line; "" if unknown.
    """

    identity: str
    entries: frozenset[str]
    pass_name: str
    path: str
    path_occurrence: int
    computation: str
    original: str
    count: int
    lost: int
    stopped: tuple[str, ...]
    source: str


def find_rewrites(module: HloModule, *, threads: int = 1) -> list[AcceptedRewrite]:
    """Lists the rewrites of XLA's CPU pipeline that can be rejected.

    Passes that the backend needs are left out (`hloenv.hlo.pipeline.needed_passes`).

    Args:
        module: at the start of XLA's pipeline.
        threads: cores that it will run on.

    Returns:
        Those with the largest `weight_s` first.

    Raises:
        CompileError, PassError: a pass fails on the module.
    """
    found: dict[str, AcceptedRewrite] = {}
    with as_if_on(threads):
        for each in _all_runs(module):
            found[each.identity] = _together(found.get(each.identity), each)
    return sorted(found.values(), key=lambda each: -each.weight_s)


def _all_runs(module: HloModule) -> Iterator[AcceptedRewrite]:
    """The rewrites of each run of a pass; equal ones of one run together."""
    changed = {
        (stage.path, stage.path_occurrence): stage.name
        for stage in list_stages(module)
        if stage.changed and not _is_needed(stage.name)
    }
    with intercept(module) as pipeline:
        for stage in pipeline:
            if (stage.path, stage.path_occurrence) in changed:
                yield from _of_stage(stage, set(changed.values()))


def _is_needed(name: str) -> bool:
    for each in needed_passes():
        stem = each.name.removesuffix("*")
        if name == stem or (stem != each.name and name.startswith(stem)):
            return True
    return False


def _together(first: AcceptedRewrite | None, other: AcceptedRewrite) -> AcceptedRewrite:
    """Counts equal rewrites of several runs together."""
    if first is None:
        return other
    return dataclasses.replace(
        first,
        count=first.count + other.count,
        weight_s=first.weight_s + other.weight_s,
        entries=first.entries | other.entries,
        source=first.source or other.source,
    )


def _of_stage(stage: LiveStage, names: set[str]) -> Iterator[AcceptedRewrite]:
    """The rewrites of one run of a pass, equal ones together.

    Args:
        stage: the run, before it.
        names: the passes that change the module in the whole pipeline.
    """
    alternatives = stage.get_alternatives()
    decisions = alternatives.decisions_for(stage.name)
    groups = _equal_ones(alternatives, decisions)
    if not groups:
        return
    changes = Changes(alternatives)
    sources = alternatives.sources
    stopped = tuple(
        rule.skipped
        for rule in skip_rules()
        if rule.decided == stage.name
        and not rule.makes_the_same
        and rule.skipped in names
    )
    for entries, members in groups.items():
        first = alternatives[members[0]]
        change = changes.of(members[0], int(decisions[members[0]]))
        fields = {**vars(change), "weight_s": change.weight_s * len(members)}
        yield AcceptedRewrite(
            **fields,
            identity=entries[0].partition("?")[2],
            entries=frozenset(entries),
            pass_name=stage.name,
            path=stage.path,
            path_occurrence=stage.path_occurrence,
            computation=first.sites[0].computation,
            original=first.original,
            count=len(members),
            lost=_num_lost(alternatives, decisions, members),
            stopped=stopped,
            source=str(next(filter(None, (sources[i] for i in members)), "")),
        )


def _equal_ones(
    alternatives: Alternatives, decisions: Int64Array
) -> dict[tuple[str, ...], list[int]]:
    """Accepted alternatives by the entries that reject them."""
    groups: dict[tuple[str, ...], list[int]] = {}
    rejection = alternatives.leave_to_xla()
    for index in np.flatnonzero(decisions > 0).tolist():
        rejection[index] = 0
        entries = tuple(alternatives._capture.rejected(rejection))
        rejection[index] = -1
        if entries:
            groups.setdefault(entries, []).append(index)
    return groups


def _num_lost(
    alternatives: Alternatives, decisions: Int64Array, members: list[int]
) -> int:
    """Other accepted rewrites that are irrelevant without `members`."""
    without = decisions.copy()
    without[members] = 0
    relevant = alternatives.relevant
    is_lost = relevant(decisions) & ~relevant(without) & (without > 0)
    return int(np.count_nonzero(is_lost))
