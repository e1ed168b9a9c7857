#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All pairs of two arrays, which are broadcast to each other and reduced, and tables.

All are slow on a CPU under jax.jit. The rules (`reduce-forms/blocked`, `as_dot` and
`scatter_into`) were set on single operations: sums and extremes of functions of
`a[:, :, None]` and `b[None]`, and `table - 0.1 * gradient` of rows of a table. These
programs were written afterwards.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def uniform(*shape: int, seed: int = 0) -> Any:
    """Numbers from 0 to 1."""
    return jax.random.uniform(jax.random.key(seed), shape, jnp.float32)


def viterbi() -> Program:
    """The best tags of 64 sentences of 30 words, of 48 tags each."""

    def decode(emissions: Any, transitions: Any) -> Any:
        def step(best: Any, emission: Any) -> Any:
            scores = best[:, :, None] + transitions
            return scores.max(1) + emission, scores.argmax(1)

        best, back = jax.lax.scan(step, emissions[0], emissions[1:])

        def follow(tag: Any, pointers: Any) -> Any:
            before = jnp.take_along_axis(pointers, tag[:, None], 1)[:, 0]
            return before, before

        last = best.argmax(1)
        return best.max(1), jax.lax.scan(follow, last, back, reverse=True)[1]

    return decode, (normal(30, 64, 48), normal(48, 48, seed=1))


def crf() -> Program:
    """The logarithm of the sum over all tags of 64 sentences of 30 words."""

    def partition(emissions: Any, transitions: Any) -> Any:
        def step(alpha: Any, emission: Any) -> Any:
            scores = alpha[:, :, None] + transitions
            return jax.nn.logsumexp(scores, axis=1) + emission, None

        alpha = jax.lax.scan(step, emissions[0], emissions[1:])[0]
        return jax.nn.logsumexp(alpha, axis=1)

    return partition, (normal(30, 64, 64), normal(64, 64, seed=1))


def paths() -> Program:
    """The shortest paths between all of 300 places, by squaring nine times."""

    def square(lengths: Any, _: Any) -> Any:
        return (lengths[:, :, None] + lengths[None]).min(1), None

    def shortest(lengths: Any) -> Any:
        return jax.lax.scan(square, lengths, None, length=9)[0]

    return shortest, (jnp.where(jnp.eye(300, dtype=bool), 0, uniform(300, 300)),)


def laplacian() -> Program:
    """The mean discrepancy of two samples of 400 points by Laplace's kernel."""

    def kernel(a: Any, b: Any) -> Any:
        return jnp.exp(-jnp.abs(a[:, None] - b[None]).sum(-1) / 20)

    def discrepancy(a: Any, b: Any) -> Any:
        return kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()

    return discrepancy, (normal(400, 40), normal(400, 40, seed=1))


def network() -> Program:
    """A network of 64 radial functions of 20 features, of 3,000 points."""

    def value(x: Any, centres: Any, widths: Any, weights: Any) -> Any:
        apart = (((x[:, None] - centres) * widths) ** 2).sum(-1)
        return jnp.exp(-apart) @ weights

    arguments = (normal(64, 20, seed=1), 0.1 * uniform(64, 20), normal(64, 3))
    return value, (normal(3000, 20), *arguments)


def density() -> Program:
    """The density of 2,000 numbers at 3,000 places."""

    def at(x: Any, places: Any, width: Any) -> Any:
        apart = (places[None] - x[:, None]) / width
        return jnp.exp(-0.5 * apart * apart).mean(0) / width

    return at, (normal(2000), normal(3000, seed=1), jnp.float32(0.2))


def ranking() -> Program:
    """For each of 2,500 scores, how far it is below what ranks lower."""

    def loss(scores: Any, grades: Any) -> Any:
        margin = jax.nn.relu(1 - (scores[None] - scores[:, None]))
        return jnp.where(grades[None] > grades[:, None], margin, 0).sum(0)

    grades = jax.random.randint(jax.random.key(1), (2500,), 0, 5)
    return loss, (normal(2500), grades)


def movers() -> Program:
    """The earth mover's distances between 300 and 250 histograms of 64 bins."""

    def distances(a: Any, b: Any) -> Any:
        first, second = (
            jnp.cumsum(each / each.sum(1, keepdims=True), 1) for each in (a, b)
        )
        return jnp.abs(first[:, None] - second[None]).sum(-1)

    return distances, (uniform(300, 64), uniform(250, 64, seed=1))


def skip_gram() -> Program:
    """A step of word vectors: 30,000 words, 512 pairs with five other words each."""

    def loss(tables: Any, words: Any, contexts: Any, others: Any) -> Any:
        own, around = tables
        word = own[words]
        right = (word * around[contexts]).sum(-1)
        wrong = (word[:, None] * around[others]).sum(-1)
        return -(jax.nn.log_sigmoid(right) + jax.nn.log_sigmoid(-wrong).sum(-1)).mean()

    def step(tables: Any, *batch: Any) -> Any:
        slopes = jax.grad(loss)(tables, *batch)
        return jax.tree.map(lambda t, g: t - 0.05 * g, tables, slopes)

    tables = (0.1 * normal(30_000, 100), 0.1 * normal(30_000, 100, seed=1))
    keys = jax.random.split(jax.random.key(2), 3)
    sizes = ((512,), (512,), (512, 5))
    batch = [
        jax.random.randint(k, s, 0, 30_000) for k, s in zip(keys, sizes, strict=True)
    ]
    return step, (tables, *batch)


def ratings() -> Program:
    """A step of a factorization of the ratings of 40,000 users and 10,000 films."""

    def loss(tables: Any, users: Any, films: Any, stars: Any) -> Any:
        found = (tables["users"][users] * tables["films"][films]).sum(-1)
        return ((found - stars) ** 2).mean()

    def step(tables: Any, *batch: Any) -> Any:
        slopes = jax.grad(loss)(tables, *batch)
        return jax.tree.map(lambda t, g: t - 0.1 * g, tables, slopes)

    tables = {"users": normal(40_000, 32), "films": normal(10_000, 32, seed=1)}
    keys = jax.random.split(jax.random.key(2), 2)
    users, films = (
        jax.random.randint(key, (1024,), 0, count)
        for key, count in zip(keys, (40_000, 10_000), strict=True)
    )
    return step, (tables, users, films, uniform(1024))


def additive() -> Program:
    """Additive attention of 24 words to 128, of eight sentences and 64 features."""

    def attend(queries: Any, keys: Any, weights: Any) -> Any:
        both = jnp.tanh(queries[:, :, None] + keys[:, None])
        share = jax.nn.softmax((both * weights).sum(-1), axis=-1)
        return (share[..., None] * keys[:, None]).sum(2)

    return attend, (normal(8, 24, 64), normal(8, 128, 64, seed=1), normal(64))


def by_hand() -> Program:
    """A training step of two layers, whose products are written as sums."""

    def layer(x: Any, weights: Any) -> Any:
        return (x[:, :, None] * weights[None]).sum(1)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        hidden = jnp.tanh(layer(x, weights[0]))
        return ((layer(hidden, weights[1]) - y) ** 2).mean()

    weights = (0.1 * normal(100, 128), 0.1 * normal(128, 20))
    return jax.value_and_grad(loss), (weights, normal(128, 100), normal(128, 20))


def tropical() -> Program:
    """Two layers of maxima of sums, 300 to 256 to 64, of 200 inputs."""

    def value(x: Any, first: Any, second: Any) -> Any:
        hidden = (x[:, None] + first[None]).max(-1)
        return (hidden[:, None] + second[None]).max(-1)

    return value, (normal(200, 300), normal(256, 300, seed=1), normal(64, 256))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "Viterbi's algorithm": ("paths", viterbi),
    "sums over all tags": ("paths", crf),
    "shortest paths": ("paths", paths),
    "two samples by a kernel": ("pairs", laplacian),
    "radial functions": ("pairs", network),
    "density": ("pairs", density),
    "ranking": ("pairs", ranking),
    "earth mover's distances": ("pairs", movers),
    "word vectors": ("table", skip_gram),
    "ratings": ("table", ratings),
    "additive attention": ("products", additive),
    "layers by hand": ("products", by_hand),
    "layers of maxima": ("pairs", tropical),
}


if __name__ == "__main__":
    compare(PROGRAMS)
