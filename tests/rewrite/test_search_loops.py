# SPDX-License-Identifier: Apache-2.0
"""Binary searches as one kernel."""

from __future__ import annotations

from functools import partial

import pytest

from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

captured = partial(capture_jax, name="sort-forms", rule="search")


def check(fn, *arrays, most_gathers):
    """That the form computes the same, by both compilers and the interpreter."""
    module, alternatives = captured(fn, *arrays)
    assert rules(alternatives) == ["search"]
    decided = alternatives.apply([1])
    counts = decided.opcode_counts()
    assert "while" not in counts
    assert counts.get("gather", 0) <= most_gathers
    check_decided(module, decided, *arrays)
