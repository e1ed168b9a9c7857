# SPDX-License-Identifier: Apache-2.0
"""Rules that order floats of 16 bits do so after these were rounded.

XLA drops a conversion to 16 bits and back (xla_allow_excess_precision): keys that
converted such floats to float32 had the order of the numbers before, and of equal
floats another one than the first was the largest.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture_jax, decisions_for_rule, rules

pytestmark = [pytest.mark.jax, pytest.mark.compile]

DTYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16}
# The pass and rule, the columns, and what is computed of the numbers.
ORDERS = {
    "argmax": ("reduce-forms", "packed_index", 512, lambda y: y.argmax(1)),
    "argmin": ("reduce-forms", "packed_index", 512, lambda y: y.argmin(1)),
    "both": ("reduce-forms", "packed_index", 512, lambda y: (y.max(1), y.argmax(1))),
    "argsort": ("sort-forms", "packed", 512, lambda y: jnp.argsort(y, 1)),
    "descending": (
        "sort-forms",
        "packed",
        512,
        lambda y: jnp.argsort(y, 1, descending=True),
    ),
    "network": ("sort-forms", "network", 12, lambda y: jnp.argsort(y, 1)),
    "sorted": ("sort-forms", "network", 12, lambda y: jnp.sort(y, 1)),
}
PRODUCERS = {"dot": lambda a, b: a @ b, "product": lambda a, b: a * b[0]}


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_numbers_are_rounded_before_they_are_compared(order, kind, producer, engine):
    name, rule, columns, ordered = ORDERS[order]
    compute = PRODUCERS[producer]
    rows = 150 if columns > 12 else 6000
    rng = np.random.default_rng(0)
    a, b = (
        jnp.asarray(rng.normal(size=shape), DTYPES[kind])
        for shape in ((rows, columns), (columns, columns))
    )
    arrays = (np.asarray(a), np.asarray(b))
    alone = hloenv.HloModule.from_jax(compute, *arrays)
    (y,) = hloenv.compile(alone, engine=engine, isolate=False)(*arrays)
    wanted = jax.tree.leaves(jax.jit(ordered)(np.asarray(y)))
    _, alternatives = capture_jax(
        lambda a, b: ordered(compute(a, b)), *arrays, name=name, rule=rule
    )
    assert rule in rules(alternatives)
    decided = alternatives.apply(decisions_for_rule(alternatives, rule))
    found = hloenv.compile(decided, engine=engine, isolate=False)(*arrays)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_of_rows(sign, kind, producer):
    compute = PRODUCERS[producer]

    def ordered(y):
        return jax.lax.top_k(sign * y, 40)

    rng = np.random.default_rng(0)
    a, b = (
        jnp.asarray(rng.normal(size=shape), DTYPES[kind])
        for shape in ((150, 512), (512, 512))
    )
    # Of the product in the form in which it is decided, which rounds differently.
    first = hloenv.jit(compute, budget=0, remember=False)
    first(a, b)
    wanted = jax.jit(ordered)(first(a, b))
    fast = hloenv.jit(lambda a, b: ordered(compute(a, b)), budget=0, remember=False)
    found = fast(a, b)
    assert "sort-forms/wider" in fast.explain()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("kind", DTYPES)
def test_networks_keep_every_number(kind):
    """Each number of 16 bits, in rows of 8, but not-a-numbers of other bits, and
    bfloat16 below the smallest normal one, which the backend takes for zeros."""
    bits = np.random.default_rng(0).permutation(2**16).astype(np.uint16)
    x = bits.view(DTYPES[kind]).reshape(-1, 8)
    with np.errstate(invalid="ignore"):  # of signalling numbers
        x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x)
        if kind == "bf16":
            x = np.where(abs(x) < jnp.finfo(x.dtype).tiny, np.zeros_like(x), x)

    def ordered(x):
        return jnp.sort(x, 1), jnp.argsort(x, 1)

    module, alternatives = capture_jax(ordered, x, name="sort-forms", rule="network")
    decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
    assert set(rules(alternatives)) == {"network"}
    wanted = hloenv.interpret(module, x)
    found = hloenv.interpret(decided, x)
    for one, other in zip(found, wanted, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
