# SPDX-License-Identifier: Apache-2.0
"""Invariants 1, 2, 3, 6, 7, 8, checked by fingerprints and the verifier."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hloenv.hlo.passes import list_passes
from support.cases import sources

_PAIRS_PER_MODULE = 12
# Passes that often rewrite the same values.
_LIKELY_PAIRS = (
    "algsimp,cse",
    "algsimp,reshape-mover",
    "cse,dce",
    "algsimp,general-fusion",
    "fusion,general-fusion",
    "simplify-while-loops,while-loop-invariant-code-motion",
)


def _pairs(source: str) -> list[str]:
    rng = random.Random(source)
    names = list_passes()
    drawn = [",".join(rng.sample(names, 2)) for _ in range(_PAIRS_PER_MODULE)]
    return [*_LIKELY_PAIRS, *drawn]


@pytest.fixture(scope="module")
def raw(run_all: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Each pass, then pairs of passes, whose native runs one child makes once."""
    return run_all(
        "hloenv.fuzz.matrix:check_structure",
        lambda source: ("raw", [*list_passes(), *_pairs(source)]),
    )


@pytest.fixture(scope="module")
def inlined(run_all: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_all(
        "hloenv.fuzz.matrix:check_structure", lambda _: ("inlined", list_passes())
    )


@pytest.mark.parametrize("source", sources(60))
def test_every_pass_and_pairs_of_passes(
    raw: dict[str, Any], assert_checked: Callable[..., None], source: str
) -> None:
    assert_checked(raw[source], len(list_passes()) + len(_pairs(source)))


@pytest.mark.parametrize("source", sources(20))
def test_every_pass_after_inlining(
    inlined: dict[str, Any], assert_checked: Callable[..., None], source: str
) -> None:
    assert_checked(inlined[source], len(list_passes()))
