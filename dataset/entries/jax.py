# SPDX-License-Identifier: Apache-2.0
"""jax itself: stax, example optimizers, linear algebra, FFT, images, control flow."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax
from jax.example_libraries import optimizers, stax

from hloenv_cases import Lower, case, floats, ints, key


def _net(kind: str, width: int):
    if kind == "mlp":
        layers = [stax.Dense(width), stax.Relu, stax.Dense(width), stax.Gelu]
    elif kind == "conv":
        layers = [
            *(stax.Conv(width // 4, (3, 3), padding="SAME"), stax.Elu),
            *(stax.MaxPool((2, 2)), stax.Conv(width // 2, (3, 3)), stax.LeakyRelu),
            *(stax.AvgPool((2, 2)), stax.Flatten),
        ]
    else:
        branch = stax.serial(stax.Dense(width), stax.Softplus)
        layers = [
            stax.FanOut(2),
            stax.parallel(branch, stax.Dense(width)),
            stax.FanInSum,
            stax.Tanh,
        ]
    return stax.serial(*layers, stax.Dense(10), stax.LogSoftmax)


_RULES = {
    "sgd": lambda: optimizers.sgd(0.1),
    "momentum": lambda: optimizers.momentum(0.1, 0.9),
    "nesterov": lambda: optimizers.nesterov(0.1, 0.9),
    "adagrad": lambda: optimizers.adagrad(0.1),
    "rmsprop": lambda: optimizers.rmsprop(0.01),
    "rmsprop_momentum": lambda: optimizers.rmsprop_momentum(0.01),
    "adam": lambda: optimizers.adam(0.01),
    "adamax": lambda: optimizers.adamax(0.01),
    "sm3": lambda: optimizers.sm3(0.01),
}


@case(kind=["mlp", "conv", "fan"], width=[16, 64], rule=list(_RULES))
def stax_training(lower: Lower, kind, width, rule) -> None:
    init, apply = _net(kind, width)
    shape = (8, 12, 12, 3) if kind == "conv" else (8, 40)
    params = lower.shapes(lambda k: init(k, shape)[1], key())
    start, update, read = _RULES[rule]()
    state = lower.shapes(start, params)
    x, y = floats(*shape), floats(8, 10)

    def loss(params, x, y):
        return -jnp.mean(jnp.sum(apply(params, x) * y, 1))

    if rule == "sgd":
        lower("forward", apply, params, x)
        lower("grad", jax.grad(loss), params, x, y)

    def step(i, state, x, y):
        params = read(state)
        grads = optimizers.clip_grads(jax.grad(loss)(params, x, y), 1.0)
        return update(i, grads, state)

    lower("train_step", step, 3, state, x, y)


@case(n=[4, 24])
def linear_algebra(lower: Lower, n: int) -> None:
    a, b = floats(n, n), floats(n, 3)

    def spd(a):
        return a @ a.T + jnp.eye(n)

    functions = {
        "cholesky_solve": lambda a, b: jsp.linalg.cho_solve(
            jsp.linalg.cho_factor(spd(a)), b
        ),
        "triangular": lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True),
        "lu_solve": jnp.linalg.solve,
        "qr": lambda a, b: jnp.linalg.qr(a)[0] @ b,
        "eigh": lambda a, b: jnp.linalg.eigh(spd(a))[1] @ b,
        "svd": lambda a, b: jnp.linalg.svd(a)[0] @ b,
        "pinv": lambda a, b: jnp.linalg.pinv(a) @ b,
        "slogdet": lambda a, b: jnp.linalg.slogdet(a)[1] + b.sum(),
        "expm": lambda a, b: jsp.linalg.expm(a) @ b,
        "power": lambda a, b: jnp.linalg.matrix_power(a, 7) @ b,
        "kron": lambda a, b: jnp.kron(a, b),
        "cg": lambda a, b: jsp.sparse.linalg.cg(spd(a), b, maxiter=n)[0],
        "gmres": lambda a, b: jsp.sparse.linalg.gmres(spd(a), b[:, 0], maxiter=2)[0],
        "bicgstab": lambda a, b: jsp.sparse.linalg.bicgstab(spd(a), b, maxiter=n)[0],
        "polar": lambda a, b: jsp.linalg.polar(a)[0] @ b,
        "sqrtm_newton": lambda a, b: _newton_root(spd(a)) @ b,
    }
    for name, function in functions.items():
        lower(name, function, a, b)
        loss = lambda a, b, f=function: jnp.sum(f(a, b))
        lower(f"{name}_grad", jax.grad(loss, (0, 1)), a, b)


def _newton_root(a):
    scale = jnp.linalg.norm(a)

    def body(_, pair):
        y, z = pair
        t = 0.5 * (3.0 * jnp.eye(len(a)) - z @ y)
        return y @ t, t @ z

    root, _ = lax.fori_loop(0, 8, body, (a / scale, jnp.eye(len(a))))
    return root * jnp.sqrt(scale)


@case(n=[16, 100])
def signal(lower: Lower, n: int) -> None:
    x, y = floats(4, n), floats(4, n)
    functions = {
        "fft_convolve": lambda x, y: jnp.fft.irfft(
            jnp.fft.rfft(x) * jnp.fft.rfft(y), n
        ),
        "convolve": lambda x, y: jax.vmap(jnp.convolve)(x, y),
        "correlate": lambda x, y: jax.vmap(jnp.correlate)(x, y),
        "stft": lambda x, y: jnp.abs(jsp.signal.stft(x, nperseg=8)[2]) + y.sum(),
        "dct": lambda x, y: jsp.fft.dct(x) * y,
        "detrend": lambda x, y: jsp.signal.detrend(x) * y,
        "interp": lambda x, y: jax.vmap(jnp.interp)(x, jnp.sort(y), y),
        "cumulative": lambda x, y: jnp.cumsum(x, 1) * lax.cummax(y, 1),
        "sort": lambda x, y: jnp.take_along_axis(y, jnp.argsort(x, 1), 1),
        "median": lambda x, y: jnp.median(x, 1) + jnp.quantile(y, 0.3, axis=1),
        "top_k": lambda x, y: lax.top_k(x, 5)[0] + y[:, :5],
        "histogram": lambda x, y: jnp.histogram(x, 16, weights=y)[0],
        "associative": lambda x, y: lax.associative_scan(
            lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (x, y), axis=1
        ),
        "special": lambda x, y: jsp.special.gammaln(x) + jsp.special.erfinv(y),
        "betainc": lambda x, y: jsp.special.betainc(x, y, 0.3),
        "bessel": lambda x, y: jsp.special.i0e(x) + jsp.special.i1(y),
        "digamma": lambda x, y: jsp.special.digamma(x) * jsp.special.zeta(y, 2.0),
        "logsumexp": lambda x, y: jsp.special.logsumexp(x, b=y, axis=1),
        "cov": lambda x, y: jnp.cov(x) + jnp.corrcoef(y),
    }
    for name, function in functions.items():
        lower(name, function, x, y)
        loss = lambda x, y, f=function: jnp.sum(jnp.stack(
            [jnp.sum(leaf) for leaf in jax.tree.leaves(f(x, y))]))  # fmt: skip
        lower(f"{name}_grad", jax.grad(loss), x, y)


@case(size=[8, 33], channels=[1, 3])
def images(lower: Lower, size: int, channels: int) -> None:
    x = floats(2, size, size, channels)
    kernel = floats(3, 3, channels, 8)
    grid = floats(2, size * size)
    numbers = ("NHWC", "HWIO", "NHWC")
    lower("resize", lambda x: jax.image.resize(
        x, (2, 2 * size, 2 * size, channels), "bilinear"), x)  # fmt: skip
    lower("lanczos", lambda x: jax.image.resize(
        x, (2, size // 2, size // 2, channels), "lanczos3"), x)  # fmt: skip
    lower("warp", lambda x, g: jsp.ndimage.map_coordinates(
        x[0, :, :, 0], g, order=1), x, grid)  # fmt: skip
    for name, options in {
        "plain": {"window_strides": (1, 1), "padding": "SAME"},
        "strided": {"window_strides": (2, 2), "padding": "VALID"},
        "dilated": {
            "window_strides": (1, 1),
            "padding": "SAME",
            "rhs_dilation": (2, 2),
        },
    }.items():
        convolve = lambda x, k, o=options: lax.conv_general_dilated(
            x, k, dimension_numbers=numbers, **o)  # fmt: skip
        lower(f"conv_{name}", convolve, x, kernel)
        loss = lambda x, k, f=convolve: jnp.sum(f(x, k) ** 2)
        lower(f"conv_{name}_grad", jax.grad(loss, (0, 1)), x, kernel)


@case(samples=[10, 1000])
def random(lower: Lower, samples: int) -> None:
    r, shape = jax.random, (samples,)
    for name, function in {
        "normal": lambda k: r.normal(k, shape),
        "gamma": lambda k: r.gamma(k, 2.0, shape),
        "beta": lambda k: r.beta(k, 2.0, 3.0, shape),
        "poisson": lambda k: r.poisson(k, 4.0, shape),
        "categorical": lambda k: r.categorical(k, jnp.arange(7.0), shape=shape),
        "permutation": lambda k: r.permutation(k, samples),
        "choice": lambda k: r.choice(k, samples, (5,), replace=False),
        "dirichlet": lambda k: r.dirichlet(k, jnp.ones(4), shape),
        "truncated": lambda k: r.truncated_normal(k, -1.0, 2.0, shape),
        "gumbel": lambda k: r.gumbel(k, shape),
        "binomial": lambda k: r.binomial(k, 10, 0.3, shape),
        "multivariate": lambda k: r.multivariate_normal(
            k, jnp.zeros(3), jnp.eye(3), shape
        ),
        "student_t": lambda k: r.t(k, 4.0, shape),
        "ball": lambda k: r.ball(k, 3, shape=shape),
        "orthogonal": lambda k: r.orthogonal(k, 6),
        "split": lambda k: r.split(k, samples),
    }.items():
        lower(name, function, key())


@case(n=[10, 60])
def programs(lower: Lower, n: int) -> None:
    x = floats(n, 3)

    def distances(x):
        gap = x[:, None] - x[None]
        return jnp.sqrt(jnp.sum(gap**2, -1) + 1e-6)

    def kmeans(x):
        def body(_, centres):
            near = jnp.argmin(jnp.sum((x[:, None] - centres) ** 2, -1), 1)
            one = jax.nn.one_hot(near, 4)
            return one.T @ x / (one.sum(0)[:, None] + 1e-6)

        return lax.fori_loop(0, 10, body, x[:4])

    def sinkhorn(x):
        cost = distances(x)

        def body(pair, _):
            f, g = pair
            f = -0.1 * jsp.special.logsumexp((g[None] - cost) / 0.1, 1)
            g = -0.1 * jsp.special.logsumexp((f[:, None] - cost) / 0.1, 0)
            return (f, g), jnp.sum(f)

        return lax.scan(body, (jnp.zeros(n), jnp.zeros(n)), None, length=20)

    def life(board):
        near = sum(
            jnp.roll(board, (i, j), (0, 1))
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if i or j
        )
        return ((near == 3) | ((board == 1) & (near == 2))).astype(jnp.int32)

    def kalman(x):
        def step(carry, y):
            mean, cov = carry
            cov = cov + 0.1 * jnp.eye(3)
            gain = cov @ jnp.linalg.inv(cov + 0.5 * jnp.eye(3))
            mean = mean + gain @ (y - mean)
            return (mean, cov - gain @ cov), mean

        return lax.scan(step, (jnp.zeros(3), jnp.eye(3)), x)[1]

    def newton(x):
        value = lambda z: jnp.sum(jnp.cosh(z)) + jnp.sum(z**4)

        def cond(pair):
            return (jnp.linalg.norm(jax.grad(value)(pair[0])) > 1e-5) & (pair[1] < 50)

        def body(pair):
            z, i = pair
            move = jnp.linalg.solve(jax.hessian(value)(z), jax.grad(value)(z))
            return z - move, i + 1

        return lax.while_loop(cond, body, (x[:, 0], 0))

    lower("distances", distances, x)
    lower("kmeans", kmeans, x)
    lower("sinkhorn", sinkhorn, x)
    lower("life", lambda b: lax.fori_loop(0, 20, lambda _, b: life(b), b),
          ints(2, n, n))  # fmt: skip
    lower("kalman", kalman, x)
    lower("kalman_grad", jax.grad(lambda x: jnp.sum(kalman(x))), x)
    lower("newton", newton, x)
    lower("hessian", jax.hessian(lambda x: jnp.sum(jnp.sin(distances(x)))), x)
    lower("jacobian", jax.jacfwd(lambda x: jnp.tanh(distances(x)).sum(0)), x)
    lower("switch", lambda i, x: lax.switch(
        i, [jnp.sin, jnp.cos, lambda x: jnp.cumsum(x, 0)], x), 1, x)  # fmt: skip
