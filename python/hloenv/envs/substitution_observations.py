# SPDX-License-Identifier: Apache-2.0
"""What `SubstitutionEnv` shows: rows of features, one graph, or all graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from .._typing import Int64Array
from ..errors import ArgumentError
from .candidate_graphs import PackedGraph, pack, pack_candidates
from .candidates import Candidates, CandidateTable, candidate_features
from .rewrite_observations import MAX_FEATURE, RewriteObservation, RewriteSpace
from .spaces import register_observation
from .substitution import SubstitutionEnv

if TYPE_CHECKING:
    from .episode import Episode


@dataclass(frozen=True)
class SubstitutionRows(Candidates):
    """One row for each candidate, in the order of the actions.

    Attributes:
        original_row: [Y] the number of the original of each row's alternative.
    """

    original_row: Int64Array

    def originals(self) -> Int64Array:
        """[Y] the number of the original of each row's alternative, as in `row`."""
        return self.original_row


@dataclass(frozen=True, eq=False)
class CandidateGraphs:
    """The module and its candidates as graphs, as in X-RLflow.

    Attributes:
        graphs: the module, which stands for No-Op, and then the modules that the
            candidates make, in the order of the actions. Observations of equal
            modules share them.
        progress: [1] share of the steps that are behind.
    """

    graphs: tuple[PackedGraph, ...]
    progress: npt.NDArray[np.float32]

    def __eq__(self, other: object) -> bool:
        """Whether everything but the graphs' objects is equal."""
        if not isinstance(other, CandidateGraphs):
            return NotImplemented
        return self.graphs == other.graphs and np.array_equal(
            self.progress, other.progress
        )

    __hash__ = None  # type: ignore[assignment]


class CandidateGraphsSpace(gymnasium.Space[Any]):
    """Graphs of any number and size; cannot be sampled or batched."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raises: there is no distribution over modules."""
        raise NotImplementedError("candidates cannot be sampled; reset an env")

    def contains(self, x: Any) -> bool:
        """Whether `x` is a `CandidateGraphs`."""
        return isinstance(x, CandidateGraphs)


def _checked(env: Episode) -> SubstitutionEnv:
    if not isinstance(env, SubstitutionEnv):
        raise ArgumentError(
            "the observations substitutions, substitution_graph and candidate_graphs "
            f"are of hloenv/Substitution-v0, not of {type(env).__name__}"
        )
    return env


def _progress(env: SubstitutionEnv) -> npt.NDArray[np.float32]:
    share = min(len(env.actions) / env.max_steps, 1.0)
    return np.array([share], np.float32)


def _rows(env: SubstitutionEnv) -> tuple[CandidateTable, SubstitutionRows]:
    """The rows of the candidates in their alternative graph."""
    alternatives = env.expansion().alternatives
    table = CandidateTable(alternatives, alternatives.reject_all())
    rows = table.rows(any_marked=True)
    candidates = env.candidates()
    index = np.array(
        [rows.first[each.alternative] + 1 + each.choice for each in candidates],
        np.int64,
    )
    return table, SubstitutionRows(
        rows.x[index],
        rows.alternative[index],
        rows.choice[index],
        rows.row[index],
        rows.opcode[index],
        rows.rule[index],
        np.ones(len(index), np.bool_),
        rows.first,
        rows.default,
        rows.originals()[index],
    )


def _observe_graph(env: Episode) -> RewriteObservation:
    from ..graph import to_pyg

    own = _checked(env)
    progress = np.repeat(_progress(own), 2)
    if not own.candidates():
        return RewriteObservation(to_pyg(own.module), None, progress, False)
    table, rows = _rows(own)
    return RewriteObservation(table.data, rows, progress, False)


def _observe_graphs(env: Episode) -> CandidateGraphs:
    own = _checked(env)
    if own.error:
        return CandidateGraphs((pack(own.module),), _progress(own))
    expansion = own.expansion()
    graphs = expansion.made.get("graphs")
    if graphs is None:
        whole = pack(expansion.module)
        modules = [each.module for each in expansion.candidates]
        others = pack_candidates(modules, whole)
        # Another thread may have been as fast.
        graphs = expansion.made.setdefault("graphs", (whole, *others))
    return CandidateGraphs(graphs, _progress(own))


def _rows_space(env: Episode) -> spaces.Dict:
    rows, columns = _checked(env).max_candidates, len(candidate_features())
    return spaces.Dict(
        {
            "x": spaces.Box(-MAX_FEATURE, MAX_FEATURE, (rows, columns), np.float32),
            "allowed": spaces.Box(0, 1, (rows,), np.int8),
            "progress": spaces.Box(0, 1, (1,), np.float32),
        }
    )


def _observe_rows(env: Episode) -> dict[str, Any]:
    own = _checked(env)
    x = np.zeros((own.max_candidates, len(candidate_features())), np.float32)
    allowed = np.zeros(own.max_candidates, np.int8)
    if own.candidates():
        _, rows = _rows(own)
        x[: len(rows)] = np.clip(rows.x, -MAX_FEATURE, MAX_FEATURE)
        allowed[: len(rows)] = 1
    return {"x": x, "allowed": allowed, "progress": _progress(own)}


register_observation(
    "substitutions",
    "Of substitutions: a row of features for each candidate, and which rows there are.",
    _rows_space,
    _observe_rows,
)
register_observation(
    "substitution_graph",
    "Of substitutions: all candidates as one alternative graph, with their rows; for "
    "graph networks.",
    lambda _: RewriteSpace(),
    _observe_graph,
)
register_observation(
    "candidate_graphs",
    "Of substitutions: the graphs of the module and of every candidate: opcodes and "
    "edges, compressed.",
    lambda _: CandidateGraphsSpace(),
    _observe_graphs,
)
