# SPDX-License-Identifier: Apache-2.0
"""Molecular dynamics with jax-md: energies, forces, minimizers, integrators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax_md import energy, minimize, nn, partition, quantity, simulate, smap, space

from hloenv_cases import Lower, case, floats, ints, key


def _energy(name: str, displacement):
    return {
        "soft_sphere": lambda: energy.soft_sphere_pair(displacement),
        "lennard_jones": lambda: energy.lennard_jones_pair(displacement),
        "morse": lambda: energy.morse_pair(displacement),
        "gupta": lambda: energy.gupta_gold55(displacement),
        "bks": lambda: smap.pair(
            lambda dr, **_: jnp.exp(-dr) - 1.0 / (dr + 0.1) ** 6,
            space.canonicalize_displacement_or_metric(displacement),
        ),
        "stillinger_weber": lambda: energy.stillinger_weber(displacement),
    }[name]()


_NAMES = ["soft_sphere", "lennard_jones", "morse", "gupta", "bks", "stillinger_weber"]


@case(name=_NAMES, size=[(12, 3), (64, 3), (32, 2)], periodic=[True, False])
def potential(lower: Lower, name: str, size, periodic: bool) -> None:
    num, dimension = size
    make = (lambda: space.periodic(6.0)) if periodic else space.free
    displacement, _ = make()
    function = _energy(name, displacement)
    x = floats(num, dimension)
    lower("energy", function, x)
    lower("force", quantity.force(function), x)
    lower("force_vmap", jax.vmap(quantity.force(function)), floats(4, num, dimension))


@case(
    name=["nve", "nvt_nose_hoover", "nvt_langevin", "npt_nose_hoover", "brownian"],
    size=[(16, 2), (48, 3)],
    pair=["soft_sphere", "lennard_jones"],
)
def integrator(lower: Lower, name: str, size, pair: str) -> None:
    num, dimension = size
    x = floats(num, dimension)
    if name == "npt_nose_hoover":
        box = jnp.eye(dimension) * 6.0
        displacement, shift = space.periodic_general(box)
        function = _energy(pair, displacement)
        init, step = simulate.npt_nose_hoover(function, shift, 1e-3, 1.0, 0.1)
        state = lower.shapes(lambda k, x: init(k, x, box), key(), x)
    else:
        displacement, shift = space.periodic(6.0)
        function = _energy(pair, displacement)
        arguments = () if name == "nve" else (0.1,)
        init, step = getattr(simulate, name)(function, shift, 1e-3, *arguments)
        extra = {"kT": 0.1} if name == "nve" else {}
        state = lower.shapes(lambda k, x: init(k, x, **extra), key(), x)
    lower("step", step, state)

    def trajectory(state):
        return jax.lax.fori_loop(0, 50, lambda _, s: step(s), state)

    lower("trajectory", trajectory, state)
    lower("swarm", jax.vmap(step), jax.tree.map(
        lambda s: floats(3, *s.shape, dtype=s.dtype), state))  # fmt: skip


@case(rule=["fire_descent", "gradient_descent"], num=[16, 64], pair=_NAMES[:3])
def minimizer(lower: Lower, rule: str, num: int, pair: str) -> None:
    displacement, shift = space.periodic(6.0)
    function = _energy(pair, displacement)
    options = (1e-3,) if rule == "gradient_descent" else ()
    init, step = getattr(minimize, rule)(function, shift, *options)
    state = lower.shapes(init, floats(num, 2))
    lower("step", step, state)
    lower("run", lambda s: jax.lax.fori_loop(0, 100, lambda _, s: step(s), s), state)


@case(pair=["soft_sphere", "lennard_jones", "morse"], num=[64, 128])
def neighbour_list(lower: Lower, pair: str, num: int) -> None:
    side = 12.0
    displacement, shift = space.periodic(side)
    make = {
        "soft_sphere": energy.soft_sphere_neighbor_list,
        "lennard_jones": energy.lennard_jones_neighbor_list,
        "morse": energy.morse_neighbor_list,
    }[pair]
    neighbours, function = make(displacement, side)
    x = np.random.default_rng(0).uniform(0, side, (num, 3)).astype(np.float32)
    found = neighbours.allocate(x)
    lower("energy", lambda x, n: function(x, n), x, found)
    lower("force", lambda x, n: jax.grad(function)(x, n), x, found)
    lower("update", lambda x, n: n.update(x).idx, x, found)
    init, step = simulate.nvt_nose_hoover(function, shift, 1e-3, 0.1)
    state = lower.shapes(lambda k, x: init(k, x, neighbor=found), key(), x)

    def advance(state, found):
        state = step(state, neighbor=found)
        return state, found.update(state.position)

    lower("md_step", advance, state, found)


@case(num=[16, 48])
def measures(lower: Lower, num: int) -> None:
    displacement, _ = space.periodic(6.0)
    x, v = floats(num, 3), floats(num, 3)
    radii = jnp.linspace(0.1, 2.5, 20)
    metric = space.metric(displacement)
    lower("g_of_r", quantity.pair_correlation(displacement, radii, 0.1), x)
    lower("temperature", lambda v: quantity.temperature(velocity=v), v)
    lower("distances", space.map_product(metric), x, x)
    function = energy.soft_sphere_pair(displacement)
    lower("hessian", jax.hessian(function), x)
    lower("cosines", lambda x: quantity.cosine_angles(
        space.map_product(displacement)(x, x)), x)  # fmt: skip


@case(num=[12, 32])
def learned(lower: Lower, num: int) -> None:
    displacement, _ = space.periodic(6.0)
    x = floats(num, 3)
    species = np.zeros(num, np.int32)
    init, apply = energy.behler_parrinello(displacement, species, filter_size=16)[:2]
    params = lower.shapes(init, key(), x)

    def loss(params, x, energies, forces):
        function = jax.vmap(apply, (None, 0))
        predicted = jax.vmap(jax.grad(apply, 1), (None, 0))(params, x)
        error = jnp.mean((function(params, x) - energies) ** 2)
        return error + jnp.mean((predicted + forces) ** 2)

    batch = (floats(4, num, 3), floats(4), floats(4, num, 3))
    lower("energy", apply, params, x)
    lower("force", jax.grad(apply, 1), params, x)
    lower.loss(loss, params, *batch)
    features = nn.behler_parrinello.symmetry_functions(displacement, species)
    lower("symmetry", features, x)


@case(num=[16, 40])
def graph_potential(lower: Lower, num: int) -> None:
    displacement, _ = space.periodic(6.0)
    init, apply = energy.graph_network(displacement, 1.5)
    x = floats(num, 3)
    params = lower.shapes(init, key(), x)
    lower("energy", apply, params, x)
    lower("force", jax.grad(apply, 1), params, x)
    lower.loss(lambda p, x, e: (apply(p, x) - e) ** 2, params, x, floats())


@case(size=[32])
def cell_list(lower: Lower, size: int) -> None:
    x = np.random.default_rng(0).uniform(0, 9, (size, 2)).astype(np.float32)
    cells = partition.cell_list(9.0, 3.0)
    found = cells.allocate(x)
    lower("update", lambda x, c: cells.update(x, c).position_buffer, x, found)
    lower("ids", lambda x, i: x[i] * 2, x, ints(size, 8))
