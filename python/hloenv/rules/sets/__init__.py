# SPDX-License-Identifier: Apache-2.0
"""TASO's families of substitutions that mean something in HLO, one file each."""

from __future__ import annotations

from ..passes import RulePass
from . import concats, convolutions, dots, slices, transposes

SUBSTITUTIONS = RulePass(
    "substitutions",
    (
        *(*dots.RULES, *convolutions.RULES, *concats.RULES),
        *(*slices.RULES, *transposes.RULES),
    ),
    summary="TASO's families of substitutions for dots, convolutions, concatenations, "
    "slices and transposes, in both directions.",
)
