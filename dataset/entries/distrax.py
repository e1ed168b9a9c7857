# SPDX-License-Identifier: Apache-2.0
"""Distributions, bijectors and flows of distrax, and a hidden Markov model."""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, ints, key


@case(size=[4, 64])
def distributions(lower: Lower, size: int) -> None:
    x, v, n = floats(8, size), floats(8, size), ints(size, 8)
    made = {
        "normal": (distrax.Normal, (x, v), x),
        "log_std_normal": (distrax.LogStddevNormal, (x, v), x),
        "laplace": (distrax.Laplace, (x, v), x),
        "logistic": (distrax.Logistic, (x, v), x),
        "gumbel": (distrax.Gumbel, (x, v), x),
        "gamma": (distrax.Gamma, (x, v), x),
        "beta": (distrax.Beta, (x, v), x),
        "uniform": (distrax.Uniform, (x, v), x),
        "von_mises": (distrax.VonMises, (x, v), x),
        "mvn_diag": (distrax.MultivariateNormalDiag, (x, v), x),
        "categorical": (distrax.Categorical, (x,), n),
        "one_hot": (distrax.OneHotCategorical, (x,), x),
        "greedy": (distrax.Greedy, (x,), n),
        "softmax": (distrax.Softmax, (x,), n),
        "bernoulli": (distrax.Bernoulli, (x,), x),
        "dirichlet": (distrax.Dirichlet, (x,), x),
    }
    for name, (kind, args, value) in made.items():
        lower(f"{name}_log_prob", lambda v, *a, k=kind: k(*a).log_prob(v), value, *args)
        lower(
            f"{name}_sample", lambda s, *a, k=kind: k(*a).sample(seed=s), key(), *args
        )
    for name in ("Normal", "Gamma", "Beta", "Laplace"):
        kind = getattr(distrax, name)
        lower(f"{name}_kl", lambda a, b, k=kind: k(a, b).kl_divergence(k(b, a)), x, v)
        lower(f"{name}_entropy_grad", jax.grad(
            lambda a, b, k=kind: jnp.sum(k(a, b).log_prob(0.3))), x, v)  # fmt: skip


def _coupling(size: int, depth: int, kind: str):
    def flow(params):
        layers = []
        for i in range(depth):
            mask = (jnp.arange(size) + i) % 2 == 0
            w1, w2 = params[2 * i], params[2 * i + 1]

            def conditioner(x, w1=w1, w2=w2):
                y = jnp.tanh(x @ w1) @ w2
                return y.reshape(*y.shape[:-1], size, -1)

            if kind == "spline":
                make = lambda p: distrax.RationalQuadraticSpline(
                    p, range_min=-3.0, range_max=3.0)  # fmt: skip
            else:
                make = lambda p: distrax.ScalarAffine(
                    p[..., 0], log_scale=jnp.tanh(p[..., 1]))  # fmt: skip
            layers.append(distrax.MaskedCoupling(mask, make, conditioner))
        base = distrax.MultivariateNormalDiag(jnp.zeros(size), jnp.ones(size))
        return distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers)))

    out = size * (13 if kind == "spline" else 2)
    return flow, [floats(size, 16) if i % 2 == 0 else floats(16, out)
                  for i in range(2 * depth)]  # fmt: skip


@case(kind=["affine", "spline"], size=[(4, 2), (8, 6)])
def flow(lower: Lower, kind: str, size) -> None:
    make, params = _coupling(*size, kind)
    x = floats(16, size[0])
    lower("log_prob", lambda p, x: make(p).log_prob(x), params, x)
    lower("sample", lambda p, k: make(p).sample(seed=k, sample_shape=(8,)),
          params, key())  # fmt: skip
    lower.loss(lambda p, x: -jnp.mean(make(p).log_prob(x)), params, x)


@case(states=[2, 6], length=[10, 40])
def hidden_markov(lower: Lower, states: int, length: int) -> None:
    def model(start, matrix, means):
        return distrax.HMM(
            init_dist=distrax.Categorical(start),
            trans_dist=distrax.Categorical(matrix),
            obs_dist=distrax.Normal(means, jnp.ones(states)),
        )

    args = (floats(states), floats(states, states), floats(states))
    x = floats(length)
    lower("forward", lambda x, *a: model(*a).forward(x), x, *args)
    lower("smooth", lambda x, *a: model(*a).forward_backward(x), x, *args)
    lower("viterbi", lambda x, *a: model(*a).viterbi(x), x, *args)
    lower(
        "sample", lambda k, *a: model(*a).sample(seed=k, seq_len=length), key(), *args
    )
    likelihood = lambda a, x: model(*a).forward(x)[2]
    lower("grad", jax.grad(lambda a, x: jnp.sum(likelihood(a, x))), args, x)


@case(size=[4, 32])
def bijectors(lower: Lower, size: int) -> None:
    x = floats(8, size)
    made = {
        "tanh": distrax.Tanh,
        "sigmoid": distrax.Sigmoid,
        "gumbel_cdf": distrax.GumbelCDF,
        "affine": lambda: distrax.ScalarAffine(1.0, 2.0),
        "diag": lambda: distrax.DiagLinear(jnp.ones(size)),
        "triangular": lambda: distrax.TriangularLinear(jnp.eye(size)),
        "lower_upper": lambda: distrax.LowerUpperTriangularAffine(
            jnp.eye(size), jnp.zeros(size)
        ),
        "block": lambda: distrax.Block(distrax.Tanh(), 1),
    }
    for name, make in made.items():
        lower(f"{name}_forward", lambda x, f=make: f().forward_and_log_det(x), x)
        lower(f"{name}_inverse", lambda x, f=make: f().inverse_and_log_det(x), x)
