# SPDX-License-Identifier: Apache-2.0
"""A small module with rewrites, and what explores it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hloenv import HloModule
from hloenv.explorer.backend import Backend, Target
from hloenv.explorer.server import Server

SMALL = """HloModule small

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  p = f32[64,64] parameter(0), metadata={op_name="jit(f)/p" source_file="train.py" source_line=3}
  q = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64,64] broadcast(zero), dimensions={}
  same = f32[64,64] add(p, zeros), metadata={op_name="jit(f)/add" source_file="train.py" source_line=7}
  d = f32[64,64] dot(same, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = f32[] constant(1)
  ones = f32[64,64] broadcast(one), dimensions={}
  kept = f32[64,64] multiply(d, ones)
  e = f32[64,64] exponential(kept)
  n = f32[64,64] negate(e)
  ROOT r = f32[64] reduce(n, zero), dimensions={1}, to_apply=sum
}
"""


@pytest.fixture(scope="package")
def small() -> HloModule:
    """A module whose sum with zero and product with one algsimp removes."""
    return HloModule.from_text(SMALL)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """Explores the small module, without a store."""
    found = Backend(Target("small.hlo", SMALL), store=None)
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(backend: Backend) -> Iterator[Server]:
    """Serves it."""
    with Server(backend) as running:
        yield running
