# SPDX-License-Identifier: Apache-2.0
"""Additive regression trees by Markov chains with bartz."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from bartz import grove, mcmcstep

from hloenv_cases import Lower, case, floats, ints, key


def _state(x, y, *, trees: int, depth: int):
    return mcmcstep.init(
        X=x,
        y=y,
        offset=0.0,
        max_split=jnp.full(x.shape[0], 255, jnp.uint8),
        num_trees=trees,
        p_nonterminal=mcmcstep.make_p_nonterminal(depth),
        leaf_prior_cov_inv=mcmcstep.Wishart(nu=None, rate=None, value=float(trees)),
        error_cov_inv=mcmcstep.Wishart(nu=2.0, rate=1.0, value=1.0),
    )


@case(size=[(3, 30, 5, 4), (8, 200, 20, 6)])
def chain(lower: Lower, size) -> None:
    predictors, rows, trees, depth = size
    x = ints(256, predictors, rows).astype(np.uint8)
    make = functools.partial(_state, trees=trees, depth=depth)

    def sample(seed, x, y, steps):
        state = make(x, y)
        body = lambda state, k: (mcmcstep.step(k, state), state.resid)
        keys = jax.random.split(jax.random.wrap_key_data(seed), steps)
        state, residuals = jax.lax.scan(body, state, keys)
        return state.resid, residuals

    y = floats(rows)
    lower("init", lambda x, y: jax.tree.leaves(make(x, y)), x, y)
    for steps in (1, 5):
        lower(f"sample_{steps}", functools.partial(sample, steps=steps), key(), x, y)


@case(size=[(4, 50, 10, 4), (10, 500, 50, 6)])
def forest(lower: Lower, size) -> None:
    predictors, rows, trees, depth = size
    x = ints(256, predictors, rows).astype(np.uint8)
    half = 2 ** (depth - 1)
    axes = ints(predictors, trees, half).astype(np.uint8)
    splits = ints(256, trees, half).astype(np.uint8)

    def traverse(x, axes, splits):
        return grove.traverse_forest(x, axes, splits)

    lower("traverse", traverse, x, axes, splits)
    lower("depths", lambda s: grove.forest_depth_distr(s), splits)
    lower("histogram", lambda a, s: grove.var_histogram(predictors, a, s), axes, splits)
    lower(
        "points",
        lambda x, a, s: grove.points_per_node_distr(x, a, s, "leaf"),
        *(x, axes, splits),
    )
