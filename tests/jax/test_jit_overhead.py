# SPDX-License-Identifier: Apache-2.0
"""Which modules are decided for the overhead of XLA's runtime."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import overhead
from hloenv.jax.decide import Decided
from hloenv.jax.overhead import for_wheel, may_be_short

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def lowered(fn, *shapes):
    args = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return hloenv.HloModule.from_jax(fn, *args)


def test_what_may_be_short(monkeypatch):
    assert may_be_short(lowered(lambda x: jnp.tanh(x @ x), (8, 8)))
    assert not may_be_short(lowered(lambda x: x @ x, (512, 512)))
    assert not may_be_short(lowered(lambda x: x + 1, (10_000_000,)))
    monkeypatch.setattr(overhead, "_MAX_INSTRUCTIONS", 2)
    assert not may_be_short(lowered(lambda x: jnp.tanh(x @ x), (8, 8)))


def test_decisions_before_the_pipeline_are_kept():
    def fn(x, y):
        return jnp.argsort(x), y @ y @ y

    module = lowered(fn, (1000,), (4, 4))
    forms = hloenv.jax.auto.forms_of(module)
    assert {each.split("/")[0] for each in forms.accepted} == {"sort-forms"}
    both = for_wheel(forms)
    assert (both.engine, both.route) == ("wheel", "wheel")
    assert both.num_accepted > forms.num_accepted
    assert set(both.accepted) > set(forms.accepted)
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    y = np.eye(4, dtype=np.float32) * 2
    order, product = hloenv.compile(both.result, finish="none")(x, y)
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    np.testing.assert_allclose(product, y @ y @ y)


def test_without_a_rule_only_the_compiler_is_another():
    module = lowered(lambda x: jnp.tanh(x), (8,))
    found = for_wheel(Decided(module, module, route="stablehlo"))
    assert (found.engine, found.route, found.num_accepted) == ("wheel", "stablehlo", 0)
