# SPDX-License-Identifier: Apache-2.0
"""Functions whose constants are arguments: jax_use_simplified_jaxpr_constants."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def test_functions_with_hoisted_constants_stay_plain(run_child, tmp_path):
    run_child(
        """
import warnings
import jax, jax.numpy as jnp, numpy as np
import hloenv
warnings.simplefilter("error", hloenv.jax.FallbackWarning)

def depthwise(k, x):
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME",
        feature_group_count=x.shape[-1], dimension_numbers=("NHWC", "HWIO", "NHWC"))

K, X = jnp.ones((3, 3, 1, 8)) / 9, jnp.ones((1, 6, 6, 8))
constant = jnp.full((1, 6, 6, 8), 3.0)
fn = lambda k, x, y: depthwise(k, x) + constant
for budget in (0, 0.01):
    fast = hloenv.jit(fn, remember=False, budget=budget)
    for _ in range(2):
        np.testing.assert_allclose(fast(K, X, X), fn(K, X, X), rtol=1e-5)
    assert fast.decided == []
    assert "jax_use_simplified_jaxpr_constants" in fast.explain(), fast.explain()
for use in (
    lambda: hloenv.jit(fn, outputs="numpy")(K, X, X),
    lambda: hloenv.jax.example_inputs(fn, K, X, X),
    lambda: hloenv.load(hloenv.HloModule.from_jax(fn, K, X, X), fn)(K, X, X),
):
    try:
        use()
    except hloenv.ArgumentError as error:
        assert "jax_use_simplified_jaxpr_constants" in str(error), error
    else:
        raise AssertionError("used")
# Without constants nothing changes.
numpy = hloenv.jit(lambda x, y: x * 2, outputs="numpy")
assert numpy(np.ones(3, np.float32), np.zeros(3, np.float32)).sum() == 6
""",
        env={
            "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1",
            "HLOENV_STORE": str(tmp_path / "store.sqlite"),
        },
    )
