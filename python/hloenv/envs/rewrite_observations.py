# SPDX-License-Identifier: Apache-2.0
"""What `RewriteEnv` and `RewriteAllEnv` show: rows of features, or the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..errors import ArgumentError
from .candidates import Candidates, candidate_features
from .rewrite import RewriteAllEnv
from .rewrite_base import RewriteBase
from .spaces import MAX_COUNT, register_observation

if TYPE_CHECKING:
    from .episode import Episode


# Declared largest feature of a row; all are logarithms or flags.
MAX_FEATURE = 100.0


@dataclass(frozen=True, eq=False)
class RewriteObservation:
    """What a graph network sees of one state.

    Attributes:
        graph: the alternative graph as `hloenv.graph.pyg.HloData`; of the module where
            nothing is left to decide. States of one round share it.
        candidates: the rows; None where nothing is left to decide.
        progress: [2] shares of the decision points and of the steps that are behind.
        is_joint: whether one row of each alternative is chosen, not one of all or none.
    """

    graph: Any
    candidates: Candidates | None
    progress: npt.NDArray[np.float32]
    is_joint: bool

    def __eq__(self, other: object) -> bool:
        """Whether everything but the graph's objects is equal."""
        if not isinstance(other, RewriteObservation):
            return NotImplemented
        mine, theirs = self.candidates, other.candidates
        opcodes = self.graph.opcode.numpy(), other.graph.opcode.numpy()
        if not (
            np.array_equal(self.progress, other.progress) and np.array_equal(*opcodes)
        ):
            return False
        if mine is None or theirs is None:
            return mine is theirs
        return np.array_equal(mine.x, theirs.x) and np.array_equal(
            mine.allowed, theirs.allowed
        )

    __hash__ = None  # type: ignore[assignment]


class RewriteSpace(gymnasium.Space[Any]):
    """Observations of any size; cannot be sampled or batched."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raises: there is no distribution over modules."""
        raise NotImplementedError("alternatives cannot be sampled; reset an env")

    def contains(self, x: Any) -> bool:
        """Whether `x` is a `RewriteObservation`."""
        return isinstance(x, RewriteObservation)


def _checked(env: Episode) -> RewriteBase:
    if not isinstance(env, RewriteBase):
        raise ArgumentError(
            "the observations candidates and alternatives are of hloenv/Rewrite-v0 and "
            f"hloenv/RewriteAll-v0, not of {type(env).__name__}"
        )
    return env


def _progress(env: RewriteBase) -> npt.NDArray[np.float32]:
    shares = (env.round / len(env.stops), len(env.actions) / env.max_steps)
    return np.minimum(np.array(shares, np.float32), 1)


def _observe_alternatives(env: Episode) -> RewriteObservation:
    from ..graph import to_pyg

    own = _checked(env)
    candidates = own.candidates()
    graph = to_pyg(own.module) if candidates is None else own.table().data
    is_joint = isinstance(own, RewriteAllEnv)
    return RewriteObservation(graph, candidates, _progress(own), is_joint)


def _candidates_space(env: Episode) -> spaces.Dict:
    rows, columns = _checked(env).max_rows, len(candidate_features())
    return spaces.Dict(
        {
            "x": spaces.Box(-MAX_FEATURE, MAX_FEATURE, (rows, columns), np.float32),
            "alternative": spaces.Box(-1, MAX_COUNT, (rows,), np.int64),
            "allowed": spaces.Box(0, 1, (rows,), np.int8),
            "progress": spaces.Box(0, 1, (2,), np.float32),
        }
    )


def _observe_candidates(env: Episode) -> dict[str, Any]:
    own = _checked(env)
    limit = own.max_rows
    x = np.zeros((limit, len(candidate_features())), np.float32)
    alternative = np.full(limit, -1, np.int64)
    allowed = np.zeros(limit, np.int8)
    if (rows := own.candidates()) is not None:
        size = min(len(rows), limit)
        x[:size] = np.clip(rows.x[:size], -MAX_FEATURE, MAX_FEATURE)
        alternative[:size] = rows.alternative[:size]
        allowed[:size] = rows.allowed[:size]
    return {
        "x": x,
        "alternative": alternative,
        "allowed": allowed,
        "progress": _progress(own),
    }


register_observation(
    "candidates",
    "Of rewrites: a row of features for each choice of each alternative, its "
    "alternative (-1 pads), and whether it may be taken; what is beyond "
    "the declared number of rows is cut off.",
    _candidates_space,
    _observe_candidates,
)
register_observation(
    "alternatives",
    "Of rewrites: the alternative graph as PyTorch Geometric data, with these rows; "
    "for graph networks.",
    lambda _: RewriteSpace(),
    _observe_alternatives,
)
