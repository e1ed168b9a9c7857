# SPDX-License-Identifier: Apache-2.0
"""Inference with numpyro for data of hundreds to thousands of rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import initialize_model

from hloenv_cases import Lower, case, floats, ints, key, normal, uniform


def logistic(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 2))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w + bias), obs=y)


def network(x, y):
    width = 64
    shapes = {"w1": (x.shape[1], width), "w2": (width, width), "w3": (width, 2)}
    for name, shape in shapes.items():
        w = numpyro.sample(name, dist.Normal(jnp.zeros(shape), 0.1).to_event(2))
        x = x @ w if name == "w3" else jnp.tanh(x @ w)
    numpyro.sample("y", dist.Categorical(logits=x), obs=y)


def multilevel(x, y):
    groups = x[:, 0].astype(jnp.int32) % 100
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("groups", 100):
        offset = numpyro.sample("offset", dist.Normal(mean, scale))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=offset[groups] + x @ w), obs=y)


def _zeros(*shape):
    return jnp.zeros(shape), jnp.zeros(shape[0], jnp.int32)


def _drawn(tree):
    """Latent values near 0; step sizes, masses and counts as they start."""

    def drawn(path, leaf):
        name = jax.tree_util.keystr(path).lower()
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf if leaf.dtype != jnp.uint32 else key()
        if ".z" in name or "grad" in name:
            return normal(*leaf.shape, deviation=0.1)
        if "energy" in name or "prob" in name:
            return uniform(0.1, 0.9, *leaf.shape)
        return uniform(float(leaf.min()), float(leaf.max()), *leaf.shape)

    return jax.tree_util.tree_map_with_path(drawn, tree)


@case(model=[logistic, network, multilevel], size=[(2000, 32)])
def mcmc(lower: Lower, model, size) -> None:
    x, y = floats(*size), ints(2, size[0])
    kernels = {
        "hmc": HMC(model, step_size=0.01, num_steps=8, adapt_step_size=False),
        "nuts": NUTS(model, step_size=0.05, max_tree_depth=4, adapt_step_size=False),
    }
    for name, made in kernels.items():
        if name == "nuts" and model is network:
            continue
        state = made.init(jax.random.PRNGKey(0), 0, None, _zeros(*size), {})
        lower(
            f"{name}_step", lambda s, x, y, m=made: m.sample(s, (x, y), {}),
            _drawn(state), x, y,
        )  # fmt: skip
    if model is not network:
        return
    info = initialize_model(
        jax.random.PRNGKey(0), model, model_args=_zeros(*size), dynamic_args=True
    )
    params = jax.tree.map(lambda a: normal(*a.shape, deviation=0.1), info.param_info.z)
    potential = info.potential_fn
    lower("gradient", lambda p, x, y: jax.grad(potential(x, y))(p), params, x, y)


@case(size=[(1000, 64)])
def variational(lower: Lower, size) -> None:
    svi = SVI(network, AutoNormal(network), numpyro.optim.Adam(1e-2), Trace_ELBO(4))
    state = svi.init(jax.random.PRNGKey(0), *_zeros(*size))

    def drawn(leaf):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf if leaf.dtype != jnp.uint32 else key()
        return uniform(0.01, 0.2, *leaf.shape)

    state = jax.tree.map(drawn, state)
    lower("step", svi.update, state, floats(*size), ints(2, size[0]))
