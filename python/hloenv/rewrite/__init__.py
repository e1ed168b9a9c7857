# SPDX-License-Identifier: Apache-2.0
"""Rewrites as decisions: environments, alternatives, games, interception."""

from __future__ import annotations

from .alternatives import Alternative, Alternatives, Choice, Decisions, Site, Use
from .choice_deltas import choice_costs
from .cost_delta import CostDelta
from .env import HloEnv, State, replay
from .game import DecisionPoint, Game
from .interception import Interception, LiveStage, gpu_targets, intercept
from .policy import Policy
from .sandbox import Sandbox, isolated
from .trace import Trace
from .verify import ChoiceError, verify_alternatives

__all__ = [
    "Alternative",
    "Alternatives",
    "Choice",
    "ChoiceError",
    "CostDelta",
    "DecisionPoint",
    "Decisions",
    "Game",
    "HloEnv",
    "Interception",
    "LiveStage",
    "Policy",
    "Sandbox",
    "Site",
    "State",
    "Trace",
    "Use",
    "choice_costs",
    "gpu_targets",
    "intercept",
    "isolated",
    "replay",
    "verify_alternatives",
]
