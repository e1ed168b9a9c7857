# SPDX-License-Identifier: Apache-2.0
"""The rewrites that XLA's own pipeline makes on a module, equal ones together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .._typing import Int64Array
from ..hlo.module import HloModule
from ..hlo.pipeline import is_needed, list_stages, skip_rules
from ..process.cpu_affinity import as_if_on
from ..rewrite.alternatives import Alternatives
from ..rewrite.interception import LiveStage, intercept
from .changes import Change, Changes

# Passes that change no operation, only what XLA knows of it.
_ANNOTATIONS = frozenset({"while-loop-trip-count-annotator"})


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

    Passes that the backend needs (`hloenv.hlo.pipeline.needed_passes`) and those that
    only annotate operations are left out.

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
        changed = {
            (stage.path, stage.path_occurrence): stage.name
            for stage in list_stages(module)
            if stage.changed and not _is_left_out(stage.name)
        }
        with intercept(module) as pipeline:
            for stage in pipeline:
                if (stage.path, stage.path_occurrence) in changed:
                    _add_run(stage, set(changed.values()), found)
    return sorted(found.values(), key=lambda each: -each.weight_s)


def _is_left_out(name: str) -> bool:
    if name in _ANNOTATIONS:
        return True
    return is_needed(name)


def _add_run(
    stage: LiveStage, names: set[str], found: dict[str, AcceptedRewrite]
) -> None:
    """Adds the rewrites of one run of a pass.

    Args:
        stage: the run, before it.
        names: the passes that change the module in the whole pipeline.
        found: rewrites by identity.
    """
    run = _Run(stage, names)
    for entries, members in run.groups.items():
        identity = entries[0].partition("?")[2]
        if (known := found.get(identity)) is None:
            found[identity] = run.describe(entries, members)
            continue
        count = known.count + len(members)
        found[identity] = dataclasses.replace(
            known,
            count=count,
            weight_s=known.weight_s / known.count * count,
            entries=known.entries | set(entries),
        )


class _Run:
    """The rewrites of one run of a pass.

    Attributes:
        groups: equal alternatives by the entries that reject them.
    """

    def __init__(self, stage: LiveStage, names: set[str]) -> None:
        self._stage = stage
        self._alternatives = stage.get_alternatives()
        self._decisions = self._alternatives.decisions_for(stage.name)
        self._stopped = tuple(
            rule.skipped
            for rule in skip_rules()
            if rule.decided == stage.name
            and not rule.makes_the_same
            and rule.skipped in names
        )
        self.groups = _equal_ones(self._alternatives, self._decisions)

    # Reading the alternative graph takes longer than all else: only for new rewrites.
    @cached_property
    def _changes(self) -> Changes:
        return Changes(self._alternatives)

    @cached_property
    def _relevant(self) -> npt.NDArray[np.bool_]:
        return self._alternatives.relevant(self._decisions)

    def describe(self, entries: tuple[str, ...], members: list[int]) -> AcceptedRewrite:
        """The rewrite of the alternatives `members`, which are equal."""
        first = self._alternatives[members[0]]
        change = self._changes.of(members[0], int(self._decisions[members[0]]))
        sources = (self._alternatives.sources[i] for i in members)
        fields = {**vars(change), "weight_s": change.weight_s * len(members)}
        return AcceptedRewrite(
            **fields,
            identity=entries[0].partition("?")[2],
            entries=frozenset(entries),
            pass_name=self._stage.name,
            path=self._stage.path,
            path_occurrence=self._stage.path_occurrence,
            computation=first.sites[0].computation,
            original=first.original,
            count=len(members),
            lost=self._num_lost(members),
            stopped=self._stopped,
            source=str(next(filter(None, sources), "")),
        )

    def _num_lost(self, members: list[int]) -> int:
        """Other accepted rewrites that are irrelevant without `members`."""
        without = self._decisions.copy()
        without[members] = 0
        is_lost = self._relevant & ~self._alternatives.relevant(without)
        return int(np.count_nonzero(is_lost & (without > 0)))


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
