# SPDX-License-Identifier: Apache-2.0
"""Rewrites as decisions: environments, alternatives, games, interception."""

from __future__ import annotations

from .alternatives import Alternative, Alternatives, Choice, Decisions, Site, Use
from .choice_effects import choice_costs
from .cost_delta import CostDelta
from .env import HloEnv, State, replay
from .game import Game, Stop
from .interception import Interception, LiveStage, gpu_targets, intercept
from .policy import Policy
from .sandbox import Lab, isolated
from .trace import Trace
from .verify import ChoiceError, verify_alternatives

__all__ = [
    "Alternative",
    "Alternatives",
    "Choice",
    "ChoiceError",
    "CostDelta",
    "Decisions",
    "Game",
    "HloEnv",
    "Interception",
    "Lab",
    "LiveStage",
    "Policy",
    "Site",
    "State",
    "Stop",
    "Trace",
    "Use",
    "choice_costs",
    "gpu_targets",
    "intercept",
    "isolated",
    "replay",
    "verify_alternatives",
]
