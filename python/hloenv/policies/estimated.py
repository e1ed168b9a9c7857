# SPDX-License-Identifier: Apache-2.0
"""Registers the policies of `hloenv.search.policy`."""

from __future__ import annotations

from .base import register_policy

# Number of estimates, in addition to those of the starting points.
STEPS = 100

register_policy(
    "hill-climb",
    f"{STEPS} random changes of some decisions, each kept if the kernel cache "
    "estimates it to be faster",
    "hloenv.search.policy:HillClimb",
    is_random=True,
)
register_policy(
    "search:NAME",
    f"the best of {STEPS} candidates of a search, as estimated by the kernel cache",
    "hloenv.search.policy:make_searched",
    is_random=True,
)
register_policy(
    "greedy-kernels",
    "greedily accept blocks of decisions that the kernel cache estimates to be "
    "faster, by gain score",
    "hloenv.search.policy:make_greedy_kernels",
)
