#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs written to be measured, and not to be tuned on.

Someone who did not know hloenv's rules wrote them, after the rules: eight in the style
of reports of slow CPU programs to jax, and eight layers or training steps. `PROGRAMS`
maps a name to a kind and a function that makes the program and its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import conv_general_dilated
from programs import Program, compare, gradient_of, normal


def integers(high: int, *shape: int, seed: int = 0) -> Any:
    """Random whole numbers from 0 to `high` - 1."""
    return jnp.asarray(np.random.default_rng(seed).integers(high, size=shape), "int32")


def weights(*shape: int, seed: int = 0) -> Any:
    """Normal numbers [..., inputs, outputs] scaled by the number of inputs."""
    return normal(*shape, seed=seed) / math.sqrt(math.prod(shape[:-1]))


def training_step(loss: Callable[..., Any], params: Any, *batch: Any) -> Program:
    """A step of gradient descent with momentum."""

    def run(params: Any, velocity: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        params = jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity)
        return value, params, velocity

    return run, (params, jax.tree.map(jnp.zeros_like, params), *batch)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean negative log-likelihood of labels."""
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, labels[..., None], -1).mean()


def conv(x: Any, kernel: Any, stride: int = 1, dilation: int = 1) -> Any:
    """A convolution [n, h, w, c], grouped where the kernel has fewer inputs."""
    steps, rates, form = (stride,) * 2, (dilation,) * 2, ("NHWC", "HWIO", "NHWC")
    groups = x.shape[-1] // kernel.shape[2]
    return conv_general_dilated(x, kernel, steps, "SAME", None, rates, form, groups)


def edit_distance() -> Program:
    """Levenshtein's distance of 64 pairs of strings, a row of the table at a time."""

    def run(a: Any, b: Any) -> Any:
        columns = jnp.arange(b.size + 1, dtype=jnp.int32)

        def row(above: Any, letter: Any) -> Any:
            changed = jnp.minimum(above[:-1] + (b != letter), above[1:] + 1)
            best = jnp.concatenate([above[:1] + 1, changed])
            return jax.lax.cummin(best - columns) + columns, None

        return jax.lax.scan(row, columns, a)[0][-1]

    return jax.vmap(run), (integers(4, 64, 120), integers(4, 64, 100, seed=1))


def hidden_markov() -> Program:
    """The likelihood of 16 sequences under a hidden Markov model, in logs."""

    def run(params: Any, observed: Any) -> Any:
        move, emit = (jax.nn.log_softmax(logits) for logits in params)

        def step(alpha: Any, symbols: Any) -> Any:
            return jax.nn.logsumexp(alpha[..., None] + move, 1) + emit.T[symbols], None

        last = jax.lax.scan(step, emit.T[observed[0]], observed[1:])[0]
        return -jax.nn.logsumexp(last, -1).mean()

    return run, ((normal(24, 24), normal(24, 50, seed=1)), integers(50, 200, 16))


def particle_filter() -> Program:
    """A bootstrap filter of stochastic volatility with systematic resampling."""

    def run(key: Any, returns: Any) -> Any:
        def step(particles: Any, inputs: Any) -> Any:
            (noise_key, offset_key), y = inputs
            noise = jax.random.normal(noise_key, particles.shape, y.dtype)
            particles = 0.95 * particles + 0.3 * noise
            logs = -0.5 * (y**2 * jnp.exp(-particles) + particles)
            offset = jax.random.uniform(offset_key, (), y.dtype)
            points = (jnp.arange(particles.size) + offset) / particles.size
            chosen = jnp.searchsorted(jnp.cumsum(jax.nn.softmax(logs)), points)
            return particles[chosen], (jax.nn.logsumexp(logs), particles.mean())

        keys = jax.random.split(key, (returns.size, 2))
        return jax.lax.scan(step, jnp.zeros(1000, returns.dtype), (keys, returns))[1]

    return run, (jax.random.PRNGKey(0), normal(200))


def hamiltonian() -> Program:
    """Fifty samples of a logistic regression by Hamiltonian Monte Carlo."""

    def run(key: Any, x: Any, y: Any) -> Any:
        def energy(q: Any) -> Any:
            return (jax.nn.softplus(x @ q) - y * (x @ q)).sum() + 0.5 * q @ q

        def leapfrog(_: Any, state: Any) -> Any:
            p = state[1] - 0.01 * jax.grad(energy)(state[0])
            q = state[0] + 0.02 * p
            return q, p - 0.01 * jax.grad(energy)(q)

        def sample(q: Any, keys: Any) -> Any:
            p = jax.random.normal(keys[0], q.shape, q.dtype)
            new_q, new_p = jax.lax.fori_loop(0, 20, leapfrog, (q, p))
            change = energy(new_q) - energy(q) + 0.5 * (new_p @ new_p - p @ p)
            accept = jnp.log(jax.random.uniform(keys[1])) < -change
            return (jnp.where(accept, new_q, q),) * 2

        keys = jax.random.split(key, (50, 2))
        return jax.lax.scan(sample, jnp.zeros(x.shape[1], x.dtype), keys)[1]

    x = normal(250, 10, dtype=np.float64)
    return run, (jax.random.PRNGKey(0), x, (x[:, 0] > 0).astype(x.dtype))


def lattice_boltzmann() -> Program:
    """Twenty steps of a flow around a cylinder on a D2Q9 lattice."""
    moves = np.mgrid[-1:2, -1:2].reshape(2, 9).T.astype(np.float32)
    share = np.outer([1, 4, 1], [1, 4, 1]).reshape(9, 1, 1).astype(np.float32) / 36

    def run(flow: Any, wall: Any) -> Any:
        def step(_: Any, flow: Any) -> Any:
            moved = [jnp.roll(flow[i], moves[i].astype(int), (0, 1)) for i in range(9)]
            flow = jnp.stack(moved)
            density = flow.sum(0)
            speed = jnp.einsum("id,ixy->dxy", moves, flow) / density
            along, square = jnp.einsum("id,dxy->ixy", moves, speed), (speed**2).sum(0)
            rest = share * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)
            return jnp.where(wall, flow[::-1], flow + (rest - flow) / 0.6)

        return jax.lax.fori_loop(0, 20, step, flow)

    x, y = jnp.mgrid[:200, :80]
    start = jnp.broadcast_to(share * (1 + 0.3 * moves[:, :1, None]), (9, 200, 80))
    return run, (start, (x - 50) ** 2 + (y - 40) ** 2 < 100)


def equalization() -> Program:
    """Adaptive histogram equalization of an image in 64 tiles."""

    def run(image: Any) -> Any:
        size = image.shape[0] // 8
        tiles = image.reshape(8, size, 8, size).swapaxes(1, 2).reshape(64, -1)
        counts = jax.vmap(lambda tile: jnp.bincount(tile, length=256))(tiles)
        levels = jnp.cumsum(counts, -1).reshape(8, 8, 256) * jnp.float32(255 / size**2)
        place = (jnp.arange(image.shape[0], dtype=jnp.float32) + 0.5) / size - 0.5
        low = jnp.clip(jnp.floor(place), 0, 6).astype(jnp.int32)
        part = jnp.clip(place - low, 0, 1)
        i, j, a, b = low[:, None], low, part[:, None], part
        upper = (1 - b) * levels[i, j, image] + b * levels[i, j + 1, image]
        lower = (1 - b) * levels[i + 1, j, image] + b * levels[i + 1, j + 1, image]
        return ((1 - a) * upper + a * lower).astype(jnp.uint8)

    return run, (integers(256, 512, 512).astype(jnp.uint8),)


def registration() -> Program:
    """Ten steps that warp an image onto another with a smooth field."""

    def run(field: Any, moving: Any, fixed: Any) -> Any:
        grid = jnp.mgrid[: moving.shape[0], : moving.shape[1]].astype(field.dtype)

        def loss(field: Any) -> Any:
            places = grid + jax.image.resize(field, grid.shape, "cubic")
            warped = jax.scipy.ndimage.map_coordinates(moving, places, 1, "nearest")
            bending = sum((jnp.diff(field, axis=i) ** 2).mean() for i in (1, 2))
            return ((warped - fixed) ** 2).mean() + 0.1 * bending

        return jax.lax.fori_loop(0, 10, lambda _, x: x - 10 * jax.grad(loss)(x), field)

    image = jnp.sin(jnp.hypot(*jnp.mgrid[:160, :160]) / 8).astype(jnp.float32)
    return run, (0.1 * normal(2, 10, 10), image, jnp.roll(image, 2, 0))


def curve_fits() -> Program:
    """Levenberg and Marquardt's fits of 500 decays with four parameters each."""

    def run(params: Any, times: Any, data: Any) -> Any:
        def residual(params: Any) -> Any:
            a, b, c, d = params
            return a * jnp.exp(-b * times) + c + d * times - data

        def step(_: Any, state: Any) -> Any:
            params, damping = state
            rest, slopes = residual(params), jax.jacfwd(residual)(params)
            damped = slopes.T @ slopes * (1 + damping * jnp.eye(4))
            new = params - jnp.linalg.solve(damped, slopes.T @ rest)
            better = (residual(new) ** 2).sum() < (rest**2).sum()
            damping = jnp.where(better, damping / 3, damping * 2)
            return jnp.where(better, new, params), damping

        return jax.lax.fori_loop(0, 15, step, (params, 0.01))[0]

    times = jnp.linspace(0, 4, 40)
    data = 2 * jnp.exp(-1.3 * times) + 0.5 + 0.05 * normal(500, 40, dtype=np.float64)
    return jax.vmap(run, (0, None, 0)), (jnp.ones((500, 4)), times, data)


def wavenet() -> Program:
    """A training step of a stack of gated dilated convolutions of sound."""

    def loss(params: Any, sound: Any) -> Any:
        x, skips = params["embed"][sound[:, :-1]], 0
        for i, (kernel, mix) in enumerate(params["layers"]):
            pad, rate, form = [(2**i, 0)], (2**i,), ("NWC", "WIO", "NWC")
            both = conv_general_dilated(x, kernel, (1,), pad, None, rate, form)
            a, b = jnp.split(both, 2, -1)
            residual, skip = jnp.split(jnp.tanh(a) * jax.nn.sigmoid(b) @ mix, 2, -1)
            x, skips = x + residual, skips + skip
        return cross_entropy(jax.nn.relu(skips) @ params["out"], sound[:, 1:])

    layers = [(weights(2, 32, 64, seed=i), weights(32, 64)) for i in range(8)]
    params = {"embed": normal(256, 32), "layers": layers, "out": weights(32, 256)}
    return training_step(loss, params, integers(256, 2, 1025))


def denoiser() -> Program:
    """A training step of a small U-Net that predicts the noise of diffusion."""

    def block(x: Any, time: Any, first: Any, mix: Any, second: Any) -> Any:
        x = conv(x, first) + (time @ mix)[:, None, None]
        groups = jax.nn.standardize(x.reshape(*x.shape[:3], 8, -1), (1, 2, 4))
        return conv(jax.nn.silu(groups.reshape(x.shape)), second)

    def loss(params: Any, key: Any, images: Any) -> Any:
        noise_key, time_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, images.shape, images.dtype)
        t = jax.random.uniform(time_key, (images.shape[0], 1), images.dtype)
        signal = jnp.cos(t * np.pi / 2)[..., None, None]
        noisy = signal * images + jnp.sqrt(1 - signal**2) * noise
        time = jnp.sin(t * jnp.exp(jnp.arange(32, dtype=t.dtype) / 6))
        top = block(noisy, time, *params["down"])
        low = block(conv(top, params["stride"], stride=2), time, *params["middle"])
        high = jax.image.resize(low, (*top.shape[:3], low.shape[-1]), "nearest")
        x = block(jnp.concatenate([top, high], -1), time, *params["up"])
        return ((conv(jax.nn.silu(x), params["out"]) - noise) ** 2).mean()

    params = {"stride": weights(3, 3, 32, 64), "out": weights(3, 3, 32, 3)}
    for name, a, b in (("down", 3, 32), ("middle", 64, 64), ("up", 96, 32)):
        params[name] = weights(3, 3, a, b), weights(32, b), weights(3, 3, b, b)
    return training_step(loss, params, jax.random.PRNGKey(0), normal(4, 32, 32, 3))


def pyramid() -> Program:
    """An atrous pyramid of separable convolutions with squeeze and excitation."""

    def run(params: Any, x: Any) -> Any:
        pooled = jax.nn.relu(x.mean((1, 2), keepdims=True) @ params["pool"])
        parts = [jnp.broadcast_to(pooled, (*x.shape[:3], pooled.shape[-1]))]
        for rate, (wide, point) in params["rates"].items():
            parts.append(jax.nn.relu(conv(jax.nn.relu(conv(x, wide, 1, rate)), point)))
        x = jax.nn.relu(jnp.concatenate(parts, -1) @ params["project"] + params["bias"])
        squeezed = jax.nn.relu(x.mean((1, 2)) @ params["squeeze"])
        return x * jax.nn.sigmoid(squeezed @ params["excite"])[:, None, None]

    kernels = normal(3, 3, 1, 160) / 3, weights(1, 1, 160, 64)
    params = {"rates": dict.fromkeys((1, 6, 12, 18), kernels), "bias": normal(64)}
    params |= {"pool": weights(160, 64), "project": weights(320, 64)}
    params |= {"squeeze": weights(64, 16), "excite": weights(16, 64)}
    return run, (params, normal(1, 33, 33, 160))


def language_model() -> Program:
    """A training step of a language model with a long short-term memory."""

    def loss(params: Any, words: Any) -> Any:
        inputs = params["embed"][words[:-1]]

        def step(state: Any, x: Any) -> Any:
            h, c = state
            gates = x @ params["input"] + h @ params["hidden"] + params["bias"]
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        hidden = jax.lax.scan(step, (jnp.zeros_like(inputs[0]),) * 2, inputs)[1]
        return cross_entropy(hidden @ params["embed"].T, words[1:])

    params = {"embed": normal(2000, 128) / 10, "bias": jnp.zeros(512, jnp.float32)}
    params |= {"input": weights(128, 512), "hidden": weights(128, 512, seed=1)}
    return training_step(loss, params, integers(2000, 36, 16))


def generation() -> Program:
    """Sixteen words from a transformer of four layers with keys and values kept."""
    norm = jax.nn.standardize

    def run(params: Any, cache: Any, word: Any, start: Any) -> Any:
        def step(state: Any, position: Any) -> Any:
            cache, word = state
            x = params["embed"][word]
            for i, (qkv, out, up, down) in enumerate(params["layers"]):
                q, k, v = (norm(x) @ qkv).reshape(3, *cache.shape[3:])
                cache = cache.at[i, :, position].set(jnp.stack([k, v]))
                scores = jnp.einsum("hd,thd->ht", q / 8, cache[i, 0])
                seen = jnp.arange(cache.shape[2]) <= position
                odds = jax.nn.softmax(jnp.where(seen, scores, -1e9))
                x = x + jnp.einsum("ht,thd->hd", odds, cache[i, 1]).reshape(-1) @ out
                x = x + jax.nn.gelu(norm(x) @ up) @ down
            word = jnp.argmax(params["embed"] @ norm(x)).astype(word.dtype)
            return (cache, word), word

        return jax.lax.scan(step, (cache, word), start + jnp.arange(16))

    shapes = (256, 768), (256, 256), (256, 1024), (1024, 256)
    layers = [[weights(*shape, seed=i) for shape in shapes] for i in range(4)]
    params = {"embed": normal(4000, 256), "layers": layers}
    return run, (params, normal(4, 2, 256, 4, 64), jnp.int32(1), jnp.int32(100))


def experts() -> Program:
    """A training step of eight experts, two for each token, of a limited capacity."""

    def loss(params: Any, x: Any, target: Any) -> Any:
        odds = jax.nn.softmax(x @ params["router"])
        best, chosen = jax.lax.top_k(odds, 2)
        picks = jax.nn.one_hot(chosen, 8, dtype=x.dtype)
        flat = picks.swapaxes(0, 1).reshape(-1, 8)
        rank = ((jnp.cumsum(flat, 0) - 1) * flat).sum(-1).reshape(2, -1).T
        slots = jax.nn.one_hot(rank.astype(jnp.int32), 160, dtype=x.dtype)
        shares = best / best.sum(-1, keepdims=True)
        combine = jnp.einsum("tk,tke,tkc->tec", shares, picks, slots)
        held = jnp.einsum("tec,td->ecd", jnp.einsum("tke,tkc->tec", picks, slots), x)
        held = jax.nn.gelu(jnp.einsum("ecd,edh->ech", held, params["up"]))
        held = jnp.einsum("ech,ehd->ecd", held, params["down"])
        out = x + jnp.einsum("tec,ecd->td", combine, held)
        balance = (odds.mean(0) * picks[:, 0].mean(0)).sum() * 8
        return ((out - target) ** 2).mean() + 0.01 * balance

    up, down = weights(8, 128, 256), weights(8, 256, 128)
    params = {"router": weights(128, 8), "up": up, "down": down}
    return training_step(loss, params, normal(512, 128), normal(512, 128, seed=1))


def graph_attention() -> Program:
    """A training step of two layers of attention over the edges of a graph."""
    nodes = 2700

    def attend(layer: Any, x: Any, source: Any, target: Any) -> Any:
        x = jnp.einsum("nf,fhd->nhd", x, layer[0])
        sent, kept = (x * layer[1]).sum(-1), (x * layer[2]).sum(-1)
        scores = jax.nn.leaky_relu(sent[source] + kept[target], 0.2)
        highest = jax.lax.stop_gradient(jax.ops.segment_max(scores, target, nodes))
        odds = jnp.exp(scores - highest[target])
        odds = odds / jax.ops.segment_sum(odds, target, nodes)[target]
        return jax.ops.segment_sum(x[source] * odds[..., None], target, nodes)

    def loss(params: Any, x: Any, source: Any, target: Any, labels: Any) -> Any:
        x = jax.nn.elu(attend(params[0], x, source, target)).reshape(nodes, -1)
        return cross_entropy(attend(params[1], x, source, target).mean(1), labels)

    params = [(normal(a, 8, b) / 8, *normal(2, 8, b)) for a, b in ((100, 8), (64, 7))]
    loops = jnp.arange(nodes, dtype=jnp.int32)
    edges = [jnp.append(integers(nodes, 10500, seed=i), loops) for i in range(2)]
    return training_step(loss, params, normal(nodes, 100), *edges, integers(7, nodes))


def recommender() -> Program:
    """A training step of a recommender with bags of embeddings of unequal sizes."""

    def loss(params: Any, dense: Any, items: Any, owners: Any, clicks: Any) -> Any:
        bottom = jax.nn.relu(dense @ params["dense"])
        rows = jax.vmap(lambda table, chosen: table[chosen])(params["tables"], items)
        pooled = jax.vmap(jax.ops.segment_sum, (0, 0, None), 1)(rows, owners, 256)
        features = jnp.concatenate([bottom[:, None], pooled], 1)
        products = jnp.einsum("bif,bjf->bij", features, features)
        x = jnp.concatenate([bottom, products[:, *np.triu_indices(9, 1)]], -1)
        logits = jax.nn.relu(x @ params["top"]) @ params["last"]
        return (jax.nn.softplus(logits) - clicks * logits).mean()

    params = {"tables": normal(8, 10000, 16) / 10, "dense": weights(13, 16)}
    params |= {"top": weights(16 + 36, 64), "last": normal(64) / 8}
    items, owners = integers(10000, 8, 2500), jnp.sort(integers(256, 8, 2500, seed=1))
    return training_step(loss, params, normal(256, 13), items, owners, integers(2, 256))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "edit distance": ("report", edit_distance),
    "hidden Markov model, gradient": ("report", lambda: gradient_of(hidden_markov())),
    "particle filter": ("report", particle_filter),
    "Hamiltonian Monte Carlo": ("report", hamiltonian),
    "lattice Boltzmann": ("report", lattice_boltzmann),
    "histogram equalization": ("report", equalization),
    "image registration": ("report", registration),
    "curve fits": ("report", curve_fits),
    "WaveNet": ("layer", wavenet),
    "diffusion U-Net": ("layer", denoiser),
    "atrous pyramid": ("layer", pyramid),
    "LSTM language model": ("layer", language_model),
    "generation with a cache": ("layer", generation),
    "mixture of experts": ("layer", experts),
    "graph attention": ("layer", graph_attention),
    "recommender": ("layer", recommender),
}


if __name__ == "__main__":
    compare(PROGRAMS)
