# SPDX-License-Identifier: Apache-2.0
"""Numerical programs at real extents, written here on jax's own API."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax

from hloenv_cases import (
    Lower,
    adam,
    adam_state,
    case,
    floats,
    ints,
    key,
    normal,
    uniform,
    weights,
)


@case(num=[2000])
def k_means(lower: Lower, num: int) -> None:
    """Ten iterations of Lloyd's algorithm with 50 clusters in 16 dimensions."""

    def iterate(centres, points):
        distance = jnp.sum((points[:, None] - centres[None]) ** 2, -1)
        nearest = jnp.argmin(distance, 1)
        total = jax.ops.segment_sum(points, nearest, len(centres))
        count = jax.ops.segment_sum(jnp.ones(len(points)), nearest, len(centres))
        return total / jnp.maximum(count, 1.0)[:, None]

    def run(centres, points):
        return lax.fori_loop(0, 10, lambda _, c: iterate(c, points), centres)

    points, centres = floats(num, 16), floats(50, 16)
    lower("step", iterate, centres, points)
    lower("run", run, centres, points)


@case(size=[(2000, 50)])
def hamiltonian(lower: Lower, size) -> None:
    """Logistic regression: one Hamiltonian transition of 16 leapfrog steps."""

    def potential(w, x, y):
        logits = x @ w
        return jnp.sum(jax.nn.softplus(logits) - y * logits) + 0.5 * jnp.sum(w**2)

    def transition(w, seed, x, y):
        first, second = jax.random.split(seed)
        slope = jax.grad(potential)
        momentum = jax.random.normal(first, w.shape)

        def leap(_, state):
            w, p = state
            p = p - 0.005 * slope(w, x, y)
            w = w + 0.01 * p
            return w, p - 0.005 * slope(w, x, y)

        new, p = lax.fori_loop(0, 16, leap, (w, momentum))
        before = potential(w, x, y) + 0.5 * jnp.sum(momentum**2)
        after = potential(new, x, y) + 0.5 * jnp.sum(p**2)
        accept = jnp.log(jax.random.uniform(second)) < before - after
        return jnp.where(accept, new, w)

    x, y = floats(*size), uniform(0, 1, size[0])
    w = normal(size[1], deviation=0.1)
    lower("transition", transition, w, key(), x, y)
    chains = normal(8, size[1], deviation=0.1)
    many = jax.vmap(transition, (0, None, None, None))
    lower("chains", many, chains, key(), x, y)


@case(num=[512])
def bodies(lower: Lower, num: int) -> None:
    """Gravity among all pairs: one step of leapfrog."""

    def forces(x, mass):
        gap = x[None] - x[:, None]
        near = jnp.sum(gap**2, -1) + 0.01
        return jnp.sum(mass[None, :, None] * gap * near[..., None] ** -1.5, 1)

    def step(x, v, mass):
        v = v + 0.005 * forces(x, mass)
        x = x + 0.01 * v
        return x, v + 0.005 * forces(x, mass)

    state = (floats(num, 3), floats(num, 3), uniform(0.5, 1.5, num))
    lower("step", step, *state)
    loss = lambda x, v, m: jnp.sum(step(x, v, m)[0] ** 2)
    lower("grad", jax.grad(loss, (0, 1)), *state)


@case(num=[500])
def gaussian_process(lower: Lower, num: int) -> None:
    def evidence(params, x, y):
        scale, noise = jnp.exp(params["scale"]), jnp.exp(params["noise"])
        near = jnp.sum(((x[:, None] - x[None]) / scale) ** 2, -1)
        gram = jnp.exp(-0.5 * near) + (noise + 1e-3) * jnp.eye(len(x))
        chol = jnp.linalg.cholesky(gram)
        half = jsp.linalg.solve_triangular(chol, y, lower=True)
        return 0.5 * half @ half + jnp.sum(jnp.log(jnp.diag(chol)))

    params = {"scale": normal(4, deviation=0.1), "noise": normal(mean=-2.0)}
    x, y = floats(num, 4), floats(num)
    lower.loss(evidence, params, x, y, only=["loss", "train_step"])


@case(size=[128, 256])
def fluid(lower: Lower, size: int) -> None:
    """Vorticity of a periodic flow by FFT: one step of second order."""
    k = jnp.fft.fftfreq(size, 1.0 / size)

    def velocity(w):
        kx, ky = k[:, None], k[None, : size // 2 + 1]
        square = (kx**2 + ky**2).at[0, 0].set(1.0)
        stream = w / square
        return jnp.fft.irfft2(1j * ky * stream), jnp.fft.irfft2(-1j * kx * stream)

    def rate(w):
        kx, ky = k[:, None], k[None, : size // 2 + 1]
        u, v = velocity(w)
        dx, dy = jnp.fft.irfft2(1j * kx * w), jnp.fft.irfft2(1j * ky * w)
        kept = (jnp.abs(kx) < size // 3) & (jnp.abs(ky) < size // 3)
        flow = jnp.fft.rfft2(u * dx + v * dy)
        return jnp.where(kept, -flow - 1e-3 * (kx**2 + ky**2) * w, 0)

    def step(field):
        w = jnp.fft.rfft2(field)
        half = w + 5e-4 * rate(w)
        return jnp.fft.irfft2(w + 1e-3 * rate(half))

    lower("step", step, floats(size, size))


@case(size=[512])
def waves(lower: Lower, size: int) -> None:
    """The wave equation with a nine-point stencil: ten steps, and their gradient."""

    def run(now, before, speed):
        def step(state, _):
            now, before = state
            padded = jnp.pad(now, 1)
            cross = padded[2:, 1:-1] + padded[:-2, 1:-1]
            cross = cross + padded[1:-1, 2:] + padded[1:-1, :-2]
            corners = padded[2:, 2:] + padded[:-2, :-2]
            corners = corners + padded[2:, :-2] + padded[:-2, 2:]
            laplacian = (4.0 * cross + corners - 20.0 * now) / 6.0
            return (2.0 * now - before + speed * laplacian, now), ()

        return lax.scan(step, (now, before), None, 10)[0]

    field = floats(size, size)
    speed = uniform(0.05, 0.2, size, size)
    lower("run", run, field, field, speed)
    loss = lambda n, b, s: jnp.mean(run(n, b, s)[0] ** 2)
    lower("grad", jax.grad(loss, 2), field, field, speed)


@case(edges=[20000])
def page_rank(lower: Lower, edges: int) -> None:
    num = 4000

    def run(senders, receivers):
        degree = jax.ops.segment_sum(jnp.ones(len(senders)), senders, num)
        share = 1.0 / jnp.maximum(degree, 1.0)

        def step(_, rank):
            flow = (rank * share)[senders]
            return 0.15 / num + 0.85 * jax.ops.segment_sum(flow, receivers, num)

        return lax.fori_loop(0, 10, step, jnp.full(num, 1.0 / num))

    lower("run", run, ints(num, edges), ints(num, edges))


@case(size=[(512, 1024, 4)])
def optimizer(lower: Lower, size) -> None:
    """Adam with weight decay over three million parameters, gradients clipped."""
    width, inner, depth = size
    layers = [(floats(width, inner), floats(inner), floats(inner, width))]
    params = weights(layers * depth)

    def update(grads, moments, params):
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
        new, moments = adam(grads, moments, params)
        new = jax.tree.map(lambda n, p: n - 1e-5 * p, new, params)
        return new, moments

    lower("update", update, params, adam_state(params), params)


@case(states=[64])
def hidden_markov(lower: Lower, states: int) -> None:
    """Eight sequences of 500 observations: likelihood, its gradient, Viterbi."""

    def likelihood(params, observed):
        start = jax.nn.log_softmax(params["start"])
        move = jax.nn.log_softmax(params["move"], 1)
        emit = jax.nn.log_softmax(params["emit"], 1)

        def step(alpha, symbol):
            alpha = jsp.special.logsumexp(alpha[:, None] + move, 0) + emit[:, symbol]
            return alpha, ()

        def one(observed):
            alpha, _ = lax.scan(step, start + emit[:, observed[0]], observed[1:])
            return jsp.special.logsumexp(alpha)

        return jnp.mean(jax.vmap(one)(observed))

    def viterbi(params, observed):
        def step(score, symbol):
            through = score[:, None] + params["move"]
            best = jnp.argmax(through, 0)
            return jnp.max(through, 0) + params["emit"][:, symbol], best

        def one(observed):
            start = params["start"] + params["emit"][:, observed[0]]
            score, back = lax.scan(step, start, observed[1:])
            last = jnp.argmax(score)
            return lax.scan(lambda s, b: (b[s], s), last, back, reverse=True)[1]

        return jax.vmap(one)(observed)

    params = {
        "start": floats(states),
        "move": floats(states, states),
        "emit": floats(states, 100),
    }
    observed = ints(100, 8, 500)
    lower("likelihood", likelihood, params, observed)
    lower("grad", jax.grad(likelihood), params, observed)
    lower("viterbi", viterbi, params, observed)
