# SPDX-License-Identifier: Apache-2.0
"""Quality-diversity with QDax: archives, emitters, whole generations."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from qdax.core.containers.mapelites_repertoire import (
    MapElitesRepertoire,
    compute_euclidean_centroids,
)
from qdax.core.emitters.mutation_operators import (
    isoline_variation,
    polynomial_crossover,
    polynomial_mutation,
)
from qdax.core.neuroevolution.networks.networks import MLP

from hloenv_cases import Lower, case, floats, key


@case(cells=[(4, 4), (10, 10)], genes=[6, 30], batch=[8, 64])
def archive(lower: Lower, cells, genes: int, batch: int) -> None:
    centroids = compute_euclidean_centroids(cells, 0.0, 1.0)
    size = cells[0] * cells[1]
    repertoire = MapElitesRepertoire(
        genotypes=floats(size, genes),
        fitnesses=floats(size, 1),
        descriptors=floats(size, 2),
        centroids=floats(*centroids.shape),
        extra_scores={},
        keys_extra_scores=(),
    )
    new = (floats(batch, genes), floats(batch, 2), floats(batch))
    lower("add", lambda r, g, d, f: r.add(g, d, f), repertoire, *new)

    def score(x):
        fitness = -jnp.sum((x - 0.5) ** 2 - jnp.cos(6 * (x - 0.5)), -1)
        return fitness, x[:, :2]

    def generation(repertoire, seed):
        first, second = jax.random.split(seed)
        index = jax.random.randint(first, (2, batch), 0, size)
        a, b = repertoire.genotypes[index[0]], repertoire.genotypes[index[1]]
        x = isoline_variation(a, b, second, iso_sigma=0.01, line_sigma=0.1)
        x = x[0] if isinstance(x, tuple) else x
        fitness, descriptors = score(x)
        return repertoire.add(x, descriptors, fitness)

    lower("generation", generation, repertoire, key())
    lower("run", lambda r, k: jax.lax.scan(
        lambda r, k: (generation(r, k), ()), r, jax.random.split(k, 10))[0],
        repertoire, key())  # fmt: skip


@case(genes=[6, 64], batch=[8, 64])
def operators(lower: Lower, genes: int, batch: int) -> None:
    x = floats(batch, genes)
    iso = functools.partial(isoline_variation, iso_sigma=0.01, line_sigma=0.1)
    lower("isoline", iso, x, x, key())
    mutate = functools.partial(
        polynomial_mutation, proportion_to_mutate=0.5, eta=1.0, minval=-1.0, maxval=1.0
    )
    lower("mutate", mutate, x, key())
    cross = functools.partial(polynomial_crossover, proportion_var_to_change=0.5)
    lower("cross", cross, x, x, key())


@case(widths=[(16, 4), (64, 64, 8)])
def policy(lower: Lower, widths) -> None:
    net = MLP(layer_sizes=tuple(widths), final_activation=jnp.tanh)
    params = lower.shapes(net.init, key(), floats(1, 12))
    many = jax.tree.map(lambda p: floats(16, *p.shape), params)
    lower("population", jax.vmap(net.apply, (0, None)), many, floats(4, 12))
