# SPDX-License-Identifier: Apache-2.0
"""Molecular dynamics of hundreds of particles with jax-md."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax_md import energy, quantity, simulate, space

from hloenv_cases import Lower, case, key, normal, uniform

SIDE = 9.0


def _state(state):
    """Distributions of the arrays of a simulation's state, by their names."""
    made = {
        "position": lambda s: uniform(0, SIDE, *s.shape),
        "momentum": lambda s: normal(*s.shape, deviation=0.3),
        "force": lambda s: normal(*s.shape),
        "mass": lambda s: uniform(1, 1, *s.shape),
    }

    def drawn(path, leaf):
        name = jax.tree_util.keystr(path).lower()
        for field, make in made.items():
            if name.endswith(f".{field}"):
                return make(leaf)
        if "chain" in name and jnp.issubdtype(leaf.dtype, jnp.floating):
            return uniform(0.5, 1.5, *leaf.shape)
        return leaf

    return jax.tree_util.tree_map_with_path(drawn, state)


@case(num=[256, 500], pair=["soft_sphere", "morse"])
def all_pairs(lower: Lower, num: int, pair: str) -> None:
    """A step of NVE, and the gradient of the energy."""
    displacement, shift = space.periodic(SIDE)
    function = getattr(energy, f"{pair}_pair")(displacement)
    x = uniform(0, SIDE, num, 3)
    init, step = simulate.nve(function, shift, 1e-3)
    state = _state(lower.shapes(lambda k, x: init(k, x, kT=0.1), key(), x))
    lower("md_step", step, state)
    if num == 256:
        lower("force", quantity.force(function), x)


@case(num=[500])
def neighbour_list(lower: Lower, num: int) -> None:
    """The list is made anew from cells in each call, because the atoms have moved."""
    displacement, shift = space.periodic(SIDE)
    neighbours, function = energy.soft_sphere_neighbor_list(displacement, SIDE)
    x = np.random.default_rng(0).uniform(0, SIDE, (num, 3)).astype(np.float32)
    found = neighbours.allocate(x, extra_capacity=16)
    init, step = simulate.nvt_nose_hoover(function, shift, 1e-3, 0.1)
    state = _state(lower.shapes(lambda k, x: init(k, x, neighbor=found), key(), x))
    found = jax.tree.map(
        lambda a: (
            uniform(0, SIDE, *a.shape)
            if a.shape == x.shape and jnp.issubdtype(a.dtype, jnp.floating)
            else a
        ),
        found,
    )

    def advance(state, found):
        found = found.update(state.position)
        return step(state, neighbor=found), found

    lower("md_step", advance, state, found)
