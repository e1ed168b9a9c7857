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
    PolicySpecError,
    UnknownPolicyError,
    describe_policy,
    get_policy,
    list_policies,
    register_policy,
)
from .convolutions import KeepConvolutions
from .fusing import FuseAllLegal, FuseByBytes
from .heuristics import (
    AcceptAll,
    FewestOps,
    FirstOnly,
    GreedyRoofline,
    KeepOriginal,
    LeastBytes,
    RandomChoice,
)
from .mixtures import Mixture, Share, XlaDefault
from .search import GreedyKernels, HillClimb, Searched

__all__ = [
    "AcceptAll",
    "FewestOps",
    "FirstOnly",
    "FuseAllLegal",
    "FuseByBytes",
    "GreedyKernels",
    "GreedyRoofline",
    "HillClimb",
    "KeepConvolutions",
    "KeepOriginal",
    "LeastBytes",
    "Mixture",
    "Policy",
    "PolicyInfo",
    "PolicySpecError",
    "RandomChoice",
    "Searched",
    "Share",
    "UnknownPolicyError",
    "XlaDefault",
    "describe_policy",
    "get_policy",
    "list_policies",
    "register_policy",
]
