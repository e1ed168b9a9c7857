# SPDX-License-Identifier: Apache-2.0
"""Graph networks as policies: `get_policy("gnn")`, and their checkpoints.

A checkpoint is one safetensors file: the weights, with the means and spreads of the
features, and JSON that says what the features mean. Reading it executes nothing that
is in it.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checkpoints import (
    check_finite,
    damage_as,
    read_checkpoint,
    write_checkpoint,
)
from .._optional import needed_by
from .._typing import BoolArray, Int64Array
from .._version import __version__
from ..cost.learned.threads import one_thread
from ..policies import PolicySpecError
from .agent import CheckpointError

with needed_by("the policy gnn", "PyTorch and PyTorch Geometric", "learn"):
    import torch

    from .networks import Encoded, RewriteNetwork, feature_names

from ..envs.candidates import Candidates, CandidateTable
from ..envs.rewrite_observations import RewriteObservation
from ..hlo.passes import pass_names
from ..search.spaces import UnknownSpaceError, get_space
from .scores import Decisions

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives

_FORMAT = 1
_KEY = "hloenv"
_KIND = "rewrite"
# Of scripts/reports/learned.toml, imitation alone: seed 2, the best of three by the
# modules that choose checkpoints.
DEFAULT_CHECKPOINT = Path(__file__).with_name("rewrite.safetensors")
# Nodes of an alternative graph that a policy encodes; XLA decides larger ones.
MAX_NODES = 200_000
# Decisions that a policy that decides one after the other makes on one capture.
_MAX_DECISIONS = 200


class GraphTooLargeWarning(UserWarning):
    """A graph has more nodes than a policy encodes; XLA decides there."""


@dataclass(frozen=True)
class GnnModel:
    """A network that was trained.

    Attributes:
        network: from observations to scores.
        is_joint: whether it decides all alternatives at once, or one after the other.
        notes: what the checkpoint says of its training.
    """

    network: RewriteNetwork
    is_joint: bool
    notes: dict[str, Any]

    @property
    def passes(self) -> frozenset[str] | None:
        """Those that it was trained to decide; None if the notes do not say it."""
        config = self.notes.get("config", {})
        try:
            stops = get_space(config["space"]).stops
        except (LookupError, TypeError, UnknownSpaceError):
            return None
        names: set[str] = set()
        for each in (each for stop in stops for each in stop.passes):
            names |= {each} if isinstance(each, str) else pass_names([each])
        return frozenset(names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; the file is replaced once it is complete.

        Raises:
            OSError: it cannot be written.
        """
        described = {
            "format": _FORMAT,
            "kind": _KIND,
            "version": __version__,
            "features": feature_names(),
            "network": {"width": self.network.width, "rounds": self.network.rounds},
            "is_joint": self.is_joint,
            "notes": self.notes,
        }
        write_checkpoint(path, _KEY, described, self.network.state_dict())


def load_gnn(path: str | os.PathLike[str] = DEFAULT_CHECKPOINT) -> GnnModel:
    """Reads a checkpoint.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: it is damaged, of another kind or a later version, or its
            features are not those of this version of hloenv.
    """
    message = f"{path} is no checkpoint of hloenv train rewrite"
    with damage_as(CheckpointError, message):
        described, weights = read_checkpoint(path, _KEY, maker="hloenv train rewrite")
        _check(path, described)
        network = RewriteNetwork(**described["network"])
        network.load_state_dict(weights)
        check_finite(weights)
        network.eval()
        if not isinstance(is_joint := described["is_joint"], bool):
            raise ValueError(f"is_joint must be true or false, got {is_joint!r}")
        return GnnModel(network, is_joint, dict(described["notes"]))


def _check(path: str | os.PathLike[str], described: dict[str, Any]) -> None:
    if (kind := described.get("kind")) != _KIND:
        raise CheckpointError(
            f"{path} holds {kind or 'another agent'!r}, not a policy of rewrites; give "
            "a checkpoint of `hloenv train rewrite`"
        )
    if described["format"] != _FORMAT:
        raise CheckpointError(
            f"{path}: format {described['format']}, this version reads {_FORMAT}"
        )
    for name, ours in feature_names().items():
        theirs = described["features"][name]
        if theirs == ours:
            continue
        gone = sorted(set(theirs) - set(ours))
        new = sorted(set(ours) - set(theirs))
        raise CheckpointError(
            f"{path}: its features of {name} are not those of hloenv {__version__}: "
            f"gone {', '.join(gone) or '-'}; new {', '.join(new) or '-'}"
            f"{'' if gone or new else '; their order differs'}; train it again"
        )


class GnnPolicy:
    """Decides as a graph network scores the choices highest.

    Alternatives by passes that it was not trained on are left to XLA.

    Args:
        model: the network; by default the one that hloenv ships.
        max_nodes: XLA decides where an alternative graph has more.
    """

    def __init__(
        self, model: GnnModel | None = None, *, max_nodes: int = MAX_NODES
    ) -> None:
        self.model = load_gnn() if model is None else model
        self._passes = self.model.passes
        self._max_nodes = max_nodes

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the likeliest choices; -1 where they are left to XLA.

        Raises:
            TrainingError: the network's scores are not finite.
        """
        return self._decide(alternatives, None)

    def sample(
        self, alternatives: Alternatives, rng: np.random.Generator
    ) -> Int64Array:
        """[A] choices that are drawn with the network's probabilities."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        return self._decide(alternatives, generator)

    def _decide(
        self, alternatives: Alternatives, generator: torch.Generator | None
    ) -> Int64Array:
        table = CandidateTable(alternatives)
        decisions = self._decide_all(table, generator)
        return np.where(self._untrained(alternatives), table.default, decisions)

    def _untrained(self, alternatives: Alternatives) -> BoolArray:
        """[A] whether all choices are of passes that no space of the training has."""
        if self._passes is None:
            return np.zeros(len(alternatives), np.bool_)
        known = self._passes
        return np.fromiter(
            (
                not any(known.intersection(choice.passes) for choice in each.choices)
                for each in alternatives
            ),
            np.bool_,
            len(alternatives),
        )

    def _decide_all(
        self, table: CandidateTable, generator: torch.Generator | None
    ) -> Int64Array:
        alternatives = table.alternatives
        if not len(alternatives):
            return table.default
        if (size := alternatives.graph.num_nodes) > self._max_nodes:
            warnings.warn(
                f"the alternative graph of {alternatives.module.name!r} has {size:,} "
                f"nodes, more than {self._max_nodes:,}: XLA decides there",
                GraphTooLargeWarning,
                stacklevel=3,
            )
            return table.default
        with one_thread(), torch.no_grad():
            encoded = self.model.network.encode([table.data])
            if self.model.is_joint:
                rows = table.rows()
                return rows.decisions(self._chosen(table, encoded, rows, generator))
            return self._one_by_one(table, encoded, generator)

    def _one_by_one(
        self,
        table: CandidateTable,
        encoded: Encoded,
        generator: torch.Generator | None,
    ) -> Int64Array:
        decisions = table.default.copy()
        is_decided = np.zeros(len(decisions), np.bool_)
        for _ in range(min(len(decisions), _MAX_DECISIONS)):
            rows = table.open_rows(decisions, is_decided)
            (position,) = self._chosen(table, encoded, rows, generator).tolist()
            if position == 0:
                break
            alternative = rows.alternative[position - 1]
            decisions[alternative] = rows.choice[position - 1]
            is_decided[alternative] = True
        return decisions

    def _chosen(
        self,
        table: CandidateTable,
        encoded: Encoded,
        rows: Candidates,
        generator: torch.Generator | None,
    ) -> Int64Array:
        seen = RewriteObservation(
            table.data, rows, np.zeros(2, np.float32), self.model.is_joint
        )
        scores = self.model.network.score_encoded(encoded, [seen], [0])
        decisions = Decisions(scores)
        chosen = decisions.mode() if generator is None else decisions.sample(generator)
        return chosen.cpu().numpy()


def make_shipped(_: int) -> GnnPolicy:
    """The policy "gnn", for any seed."""
    return GnnPolicy()


def make_from_checkpoint(path: str, _: int) -> GnnPolicy:
    """The policy "gnn:CHECKPOINT", for any seed.

    Raises:
        PolicySpecError: there is no such file.
        CheckpointError: as `load_gnn`.
    """
    try:
        return GnnPolicy(load_gnn(path))
    except FileNotFoundError as error:
        raise PolicySpecError(f"gnn:{path}: {error}") from None
