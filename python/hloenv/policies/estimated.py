# SPDX-License-Identifier: Apache-2.0
"""Policies that estimate what they decide; `hloenv.search.policy` makes them."""

from __future__ import annotations

from .base import register_policy

# Estimates, beside the starting points.
STEPS = 100

register_policy(
    "hill-climb",
    f"change some decisions at a time, {STEPS} times, and keep what the kernel cache "
    "says is faster",
    "hloenv.search.policy:HillClimb",
    is_random=True,
)
register_policy(
    "search:NAME",
    f"the best of {STEPS} steps of a search, by what the kernel cache says",
    "hloenv.search.policy:make_searched",
    is_random=True,
)
register_policy(
    "greedy-kernels",
    "take blocks of decisions, the promising first, that the kernel cache says are "
    "faster",
    "hloenv.search.policy:make_greedy_kernels",
)
