# SPDX-License-Identifier: Apache-2.0
"""Games of modules and the modules that decisions make, kept between episodes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from .._typing import Int64Array
from ..hlo.module import HloModule, identity
from ..rewrite.game import DecisionPoint, Game, Prefix
from .candidates import CandidateTable
from .pass_memo import Node

# Games that are kept; each holds its captures.
_KEPT = 32
# Decided modules of one game that are known.
_MAX_NODES = 5_000


class Play:
    """One module's game, and what has been computed of it; for several threads.

    Attributes:
        game: of the module.
        start: the node of the module.
    """

    def __init__(self, module: HloModule, stops: Sequence[DecisionPoint]) -> None:
        """Captures nothing yet."""
        self.game = Game(module, stops)
        self._lock = threading.RLock()
        self._tables: OrderedDict[tuple[bytes, ...], CandidateTable] = OrderedDict()
        self._nodes: OrderedDict[tuple[bytes, ...], Node] = OrderedDict()
        self._by_identity: dict[str, Node] = {}
        self.start = self._known(module, Node(module, load=lambda: module))

    def table(self, prefix: Prefix) -> CandidateTable:
        """What can be decided after `prefix`.

        Raises:
            HloEnvError: as `Game.alternatives`.
        """
        with self._lock:
            key = _key(prefix)
            if key not in self._tables:
                alternatives = self.game.alternatives(prefix)
                default = self.game.default(prefix)
                self._tables[key] = CandidateTable(alternatives, default)
                if len(self._tables) > _KEPT:
                    self._tables.popitem(last=False)
            self._tables.move_to_end(key)
            return self._tables[key]

    def node(self, prefix: Prefix, decisions: Int64Array) -> Node:
        """The module with these decisions after `prefix`; XLA decides the rest.

        Raises:
            HloEnvError: as `Game.alternatives`.
        """

        def load() -> HloModule:
            with self._lock:
                table = self.table(prefix)
                return table.alternatives.apply(decisions, partial=True)

        with self._lock:
            key = _key((*prefix, decisions))
            if key not in self._nodes:
                module = load()
                self._nodes[key] = self._known(module, Node(module, load=load))
                if len(self._nodes) > _MAX_NODES:
                    self._nodes.popitem(last=False)
            return self._nodes[key]

    def _known(self, module: HloModule, node: Node) -> Node:
        """The node of this module, if there is one already."""
        node.fingerprint = identity(module)
        if len(self._by_identity) > _MAX_NODES:
            self._by_identity.clear()
        return self._by_identity.setdefault(node.fingerprint, node)


class GameMemo:
    """Plays by module; the latest are kept."""

    def __init__(self, stops: Sequence[DecisionPoint]) -> None:
        """Knows nothing yet."""
        self._stops = tuple(stops)
        self._lock = threading.Lock()
        self._plays: OrderedDict[str, Play] = OrderedDict()

    def play(self, module: HloModule) -> Play:
        """The play of a module."""
        with self._lock:
            key = identity(module)
            if key not in self._plays:
                self._plays[key] = Play(module, self._stops)
                if len(self._plays) > _KEPT:
                    self._plays.popitem(last=False)
            self._plays.move_to_end(key)
            return self._plays[key]


def _key(prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in prefix)
