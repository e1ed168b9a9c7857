# SPDX-License-Identifier: Apache-2.0
"""Registers the policies of networks in `hloenv.learn`."""

from __future__ import annotations

from .base import register_policy

register_policy(
    "gnn",
    "the graph network shipped with hloenv scores the choices",
    "hloenv.learn.gnn:make_shipped",
)
register_policy(
    "gnn:CHECKPOINT",
    "a graph network that `hloenv train rewrite` has trained scores the choices",
    "hloenv.learn.gnn:make_from_checkpoint",
)
register_policy(
    "substitution:CHECKPOINT",
    "an agent that `hloenv train substitution` has trained takes one choice a round",
    "hloenv.learn.substitution_policy:make_from_checkpoint",
)
