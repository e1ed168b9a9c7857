# SPDX-License-Identifier: Apache-2.0
"""What differs between two modules, as a list and change by change."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from .._typing import Int64Array
from ..errors import ArgumentError
from ..graph.hlo_graph import HloGraph
from ..hlo.diff import ModuleDiff, diff_modules
from ..hlo.module import from_own_bytes
from .before_after import before_after
from .schema import BeforeAfter, ChangeRow, StageDiff

_MAX_CHANGES = 2000
_MAX_NEARBY = 24


def stage_diff(before: bytes, after: bytes) -> StageDiff:
    """What a pass changed, from the modules around it."""
    return _compared(before, after).rows()


def stage_change(before: bytes, after: bytes, index: int) -> BeforeAfter:
    """What is around one change of a pass; see `Changes.around`."""
    return _compared(before, after).around(index)


@functools.lru_cache(maxsize=2)
def _compared(before: bytes, after: bytes) -> Changes:
    return Changes(diff_modules(from_own_bytes(before), from_own_bytes(after)))


class Changes:
    """The changes between two modules, each with the graphs around it.

    Args:
        found: the differences of the modules.
    """

    def __init__(self, found: ModuleDiff) -> None:
        self._before, self._after = found.modules
        self._num_same = found.num_same
        self._changes: list[ChangeRow] = [
            {
                "index": 0,
                "kind": change.kind,
                "computation": computation.after or computation.before,
                "before": change.before,
                "after": change.after,
                "opcode": change.opcode,
                "shape": change.shape[:300],
                "details": [each[:300] for each in change.details],
                "source": change.source,
            }
            for computation in found.computations
            for change in computation.changes
        ]
        for index, row in enumerate(self._changes):
            row["index"] = index

    def rows(self) -> StageDiff:
        """All changes, or as many of each kind as there is room for."""
        return {
            "num_same": self._num_same,
            "num_changes": len(self._changes),
            "changes": _balanced(self._changes),
        }

    def around(self, index: int) -> BeforeAfter:
        """The graphs around one change, with the changes next to it.

        Args:
            index: of the change, as `rows` counts them.

        Raises:
            ArgumentError: there is no such change.
        """
        if not 0 <= index < len(self._changes):
            raise ArgumentError(
                f"there is no change {index}; there are {len(self._changes)}"
            )
        near = [self._changes[each] for each in self._nearest(index)]
        return before_after(
            self._before, self._after, _kinds(self._changes), set(_kinds(near))
        )

    def _nearest(self, index: int) -> list[int]:
        """The change and those nearest to it, by their number of steps from it."""
        found, is_found = [index], {index}
        for change in found:  # which grows
            if len(found) >= _MAX_NEARBY:
                break
            nearby = dict.fromkeys(self._neighbours.get(change, ()))
            new = [each for each in nearby if each not in is_found]
            found += new
            is_found.update(new)
        return found[:_MAX_NEARBY]

    @functools.cached_property
    def _neighbours(self) -> dict[int, list[int]]:
        """The changes next to each one in one of the modules.

        An edge between two changed instructions that are in both modules is no change
        itself; without it, what a pass did in two places stays apart. A removed
        instruction is next to an added one that computes the same, as in a fusion.
        """
        source, target = _moved(self._changes)
        sources, targets = [source], [target]
        names = (
            [each["before"] for each in self._changes],
            [each["after"] for each in self._changes],
        )
        for module, changed in zip((self._before, self._after), names, strict=True):
            graph = HloGraph.from_module(module)
            row = _rows_of(graph, changed)
            is_fused = graph.fusion_node >= 0
            nodes = [*graph.edge_sources, *np.flatnonzero(is_fused)]
            others = [*graph.edge_targets, *graph.fusion_node[is_fused]]
            sources.append(row[np.array(nodes, np.int64)])
            targets.append(row[np.array(others, np.int64)])
        source, target = np.concatenate(sources), np.concatenate(targets)
        is_kept = np.array([each["kind"] == "changed" for each in self._changes])
        is_edge = (source >= 0) & (target >= 0)
        is_edge &= ~(is_kept[source] & is_kept[target])
        neighbours: dict[int, list[int]] = {}
        for one, other in zip(
            source[is_edge].tolist(), target[is_edge].tolist(), strict=True
        ):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        return neighbours


def _moved(rows: Sequence[ChangeRow]) -> tuple[Int64Array, Int64Array]:
    """Removed and added instructions that look the same, in pairs in their order."""
    kinds = ("removed", "added")
    alike: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for row in rows:
        if row["kind"] in kinds and row["opcode"] != "parameter":
            key = row["opcode"], row["shape"].partition("{")[0], row["source"]
            group = alike.setdefault(key, {kind: [] for kind in kinds})
            group[row["kind"]].append(row["index"])
    pairs = [
        pair
        for group in alike.values()
        for pair in zip(group["removed"], group["added"], strict=False)
    ]
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return columns[0], columns[1]


def _rows_of(graph: HloGraph, changed: Sequence[str]) -> Int64Array:
    """[N] the change of each node, -1 for none."""
    rows = {name: row for row, name in enumerate(changed)}
    return np.fromiter(
        (rows.get(name, -1) for name in graph.node_names), np.int64, graph.num_nodes
    )


def _kinds(rows: Sequence[ChangeRow]) -> dict[str, str]:
    """Kind of change by name, in either module; a name that is used again changed."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name in {row["before"], row["after"]} - {""}:
            is_again = kinds.get(name, row["kind"]) != row["kind"]
            kinds[name] = "changed" if is_again else row["kind"]
    return kinds


def _balanced(rows: Sequence[ChangeRow]) -> list[ChangeRow]:
    """As many of each kind, in their order, as there is room for."""
    kinds = ("added", "changed", "removed")
    room = _MAX_CHANGES // len(kinds)
    return [
        row
        for kind in kinds
        for row in [each for each in rows if each["kind"] == kind][:room]
    ]
