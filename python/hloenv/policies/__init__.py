# SPDX-License-Identifier: Apache-2.0
"""Ways to decide: from alternatives to decisions.

    policy = hloenv.policies.get_policy("fewest-ops")
    env.apply_alternatives(policy(env.get_alternatives("algsimp")))

Any function from `Alternatives` to one choice each will do in place of these.
"""

from __future__ import annotations

from .base import (
    Policy,
    PolicyInfo,
    UnknownPolicyError,
    describe_policy,
    get_policy,
    list_policies,
    register_policy,
)
from .climb import HillClimb
from .heuristics import (
    AcceptAll,
    FewestOps,
    FirstOnly,
    LeastBytes,
    RandomChoice,
    RejectAll,
)

__all__ = [
    "AcceptAll",
    "FewestOps",
    "FirstOnly",
    "HillClimb",
    "LeastBytes",
    "Policy",
    "PolicyInfo",
    "RandomChoice",
    "RejectAll",
    "UnknownPolicyError",
    "describe_policy",
    "get_policy",
    "list_policies",
    "register_policy",
]
