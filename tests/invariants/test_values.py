# SPDX-License-Identifier: Apache-2.0
"""Invariants 4 and 5: decided modules compute the same values as the original."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hloenv.hlo.passes import list_passes
from support.cases import sources


def _jobs(source: str) -> tuple[str, list[str]]:
    """Every pass, and some pairs, of the inlined module."""
    rng = random.Random(source)
    names = list_passes()
    return "inlined", [*names, *(",".join(rng.sample(names, 2)) for _ in range(10))]


@pytest.fixture(scope="module")
def values(run_all: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_all("hloenv.fuzz.matrix:check_values", _jobs, timeout=100)


@pytest.mark.parametrize("source", sources(80))
def test_any_decisions_keep_the_outputs(
    values: dict[str, Any], assert_checked: Callable[..., None], source: str
) -> None:
    assert_checked(values[source])
