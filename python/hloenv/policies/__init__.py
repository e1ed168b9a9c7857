# SPDX-License-Identifier: Apache-2.0
"""Policies: functions from alternatives to decisions.

    policy = hloenv.policies.get_policy("fewest-ops")
    env.apply_alternatives(policy(env.get_alternatives("algsimp")))

Any function from `Alternatives` to one choice for each of them is a policy.
"""

from __future__ import annotations

from typing import Any

from .._registry import load_attribute
from ..rewrite.policy import Policy
from . import estimated, learned  # noqa: F401 (they register policies)
from .avoid_costly import AvoidCostly
from .base import (
    PolicyInfo,
    PolicySpecError,
    UnknownPolicyError,
    describe_policy,
    get_policy,
    list_policies,
    register_policy,
)
from .convolutions import KeepConvolutions
from .fusion import FuseAllLegal, FuseByBytes
from .gpu_forms import GpuForms
from .known_calls import KnownCalls
from .known_forms import KnownForms
from .loops import LowOverhead, SmallLoops
from .mixtures import Mixture, Share, XlaDefault
from .rules import (
    AcceptAll,
    FewestOps,
    FirstOnly,
    GreedyRoofline,
    KeepOriginal,
    LeastBytes,
    RandomChoice,
)

__all__ = [
    "AcceptAll",
    "AvoidCostly",
    "FewestOps",
    "FirstOnly",
    "FuseAllLegal",
    "FuseByBytes",
    "GpuForms",
    "GreedyRoofline",
    "KeepConvolutions",
    "KeepOriginal",
    "KnownCalls",
    "KnownForms",
    "LeastBytes",
    "LowOverhead",
    "Mixture",
    "Policy",
    "PolicyInfo",
    "PolicySpecError",
    "RandomChoice",
    "Share",
    "SmallLoops",
    "UnknownPolicyError",
    "XlaDefault",
    "describe_policy",
    "get_policy",
    "list_policies",
    "register_policy",
]

# Defined in `hloenv.search`, which depends on this package.
_LAZY = frozenset({"GreedyKernels", "HillClimb", "Searched"})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return load_attribute(f"hloenv.search.policy:{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
