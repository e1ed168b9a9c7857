# SPDX-License-Identifier: Apache-2.0
"""`relevant` against brute force over all decision vectors of small captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.cases import sources

_PASSES = ["algsimp", "cse", "algsimp,cse", "general-fusion", "call-inliner,algsimp"]


@pytest.fixture(scope="module")
def brute_force(run_all: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_all("support.relevant:check", lambda _: (_PASSES,))


@pytest.mark.parametrize("source", sources(40, with_real=False))
def test_decisions_with_an_effect_are_relevant(
    brute_force: dict[str, Any], assert_checked: Callable[..., None], source: str
) -> None:
    assert_checked(brute_force[source], len(_PASSES))
