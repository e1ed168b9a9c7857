# SPDX-License-Identifier: Apache-2.0
"""Single-decision ablation."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.bench.ablation import ablate
from hloenv.cost.kernel_cache import KernelCache
from hloenv.search.spaces import get_space

_MODULE = """HloModule mixed

ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64,64] broadcast(zero), dimensions={}
  sum = f32[64,64] add(a, zeros)
  product = f32[64,64] dot(sum, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sine = f32[64,64] sine(product)
  tanh = f32[64,64] tanh(sine)
  more = f32[64,64] multiply(tanh, sine)
  ROOT out = (f32[64,64], f32[64,64]) tuple(more, tanh)
}
"""


@pytest.mark.compile
def test_ablation_evaluates_every_single_decision() -> None:
    module = hloenv.HloModule.from_text(_MODULE)
    with KernelCache() as cache:
        ablation = ablate(module, get_space("simplify-and-fusion"), cache)
        assert ablation.default_s == cache.estimate(module).seconds
    assert sum(ablation.shares.values()) == pytest.approx(1)
    assert ablation.shares["dot"] > 0 < ablation.shares["generated code"]
    assert 0 <= ablation.num_better <= ablation.num_singles > 0
    # The good ones together are no worse than each by itself.
    assert ablation.together_s <= min(ablation.single_s, ablation.default_s)
    for decided in ablation.decided:
        result = hloenv.measure(decided, baseline=module, repeats=2)
        assert result.is_ok, result.error
