# SPDX-License-Identifier: Apache-2.0
"""Random search around XLA's own decisions."""

from __future__ import annotations

import numpy as np

from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import flip_some, relevant


class RandomSearch(Search):
    """Changes a random share of XLA's own decisions, or of a rule's.

    The number of changes is log-uniform, from one to all decisions: uniformly random
    decisions at thousands of alternatives are rarely fast.
    """

    def _proposals(self) -> Proposals:
        starts = starting_points(self.game)
        for start in starts:
            yield start
        while True:
            # XLA's own with about the same probability as all rules together.
            index = int(self._rng.integers(-len(starts), len(starts)))
            start = starts[max(0, index)]
            size = sum(each.size for each in relevant(self.game, start))
            count = max(1, round(float(np.power(max(1, size), self._rng.random()))))
            yield flip_some(self.game, start, count, self._rng)


register_search(
    "random",
    "change a random share of the decisions of XLA or of a rule",
    RandomSearch,
)
