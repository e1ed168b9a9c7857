# SPDX-License-Identifier: Apache-2.0
"""Models, HMC and variational steps of numpyro."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import (
    HMC,
    NUTS,
    SVI,
    BarkerMH,
    Trace_ELBO,
    TraceMeanField_ELBO,
)
from numpyro.infer.autoguide import (
    AutoBNAFNormal,
    AutoDelta,
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.util import initialize_model

from hloenv_cases import Lower, case, floats, ints, key

_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(20, 3)).astype(np.float32)
_Y = _RNG.normal(size=20).astype(np.float32)
_C = (_Y > 0).astype(np.int32)


def eight_schools():
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 10.0), obs=_Y[:8])


def regression():
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    numpyro.sample("y", dist.StudentT(4.0, _X @ w + b, scale), obs=_Y)


def logistic():
    w = numpyro.sample("w", dist.Laplace(jnp.zeros(3), 1).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=_X @ w), obs=_C)


def horseshoe():
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(3)).to_event(1))
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), tau * lam).to_event(1))
    numpyro.sample("y", dist.Normal(_X @ w, 1.0), obs=_Y)


def gaussian_process():
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
    gap = jnp.sum((_X[:, None] - _X) ** 2, -1)
    cov = scale * jnp.exp(-0.5 * gap / length**2) + 0.1 * jnp.eye(20)
    numpyro.sample("y", dist.MultivariateNormal(0.0, covariance_matrix=cov), obs=_Y)


def volatility():
    sigma = numpyro.sample("sigma", dist.Exponential(50.0))
    nu = numpyro.sample("nu", dist.Exponential(0.1))
    s = numpyro.sample("s", dist.GaussianRandomWalk(sigma, 20))
    numpyro.sample("r", dist.StudentT(nu, 0.0, jnp.exp(s)), obs=_Y)


def mixture():
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    means = numpyro.sample("means", dist.Normal(jnp.zeros(3), 3.0).to_event(1))
    parts = dist.Normal(means, 1.0)
    numpyro.sample(
        "y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=_Y
    )


def network():
    w1 = numpyro.sample("w1", dist.Normal(jnp.zeros((3, 8)), 1).to_event(2))
    w2 = numpyro.sample("w2", dist.Normal(jnp.zeros((8, 8)), 1).to_event(2))
    w3 = numpyro.sample("w3", dist.Normal(jnp.zeros(8), 1).to_event(1))
    out = jnp.tanh(jnp.tanh(_X @ w1) @ w2) @ w3
    numpyro.sample("y", dist.Normal(out, 0.1), obs=_Y)


def correlated():
    chol = numpyro.sample("chol", dist.LKJCholesky(3, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(jnp.ones(3)).to_event(1))
    tril = scale[:, None] * chol
    numpyro.sample("x", dist.MultivariateNormal(0.0, scale_tril=tril), obs=_X)


def poisson():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=_C)


_MODELS = [
    eight_schools, regression, logistic, horseshoe, gaussian_process, volatility,
    mixture, network, correlated, poisson,
]  # fmt: skip


@case(model=_MODELS)
def density(lower: Lower, model) -> None:
    info = initialize_model(jax.random.PRNGKey(0), model)
    params = jax.tree.map(lambda a: floats(*a.shape), info.param_info.z)
    lower("potential", info.potential_fn, params)
    lower("gradient", jax.grad(info.potential_fn), params)
    lower("hessian_vmap", jax.vmap(jax.grad(info.potential_fn)), jax.tree.map(
        lambda a: floats(4, *a.shape), params))  # fmt: skip
    lower("constrain", info.postprocess_fn, params)

    def prior(seed):
        return numpyro.infer.Predictive(model, num_samples=5)(seed)

    lower("prior", prior, key())


@case(model=_MODELS, kernel=["hmc", "nuts", "nuts_dense", "barker"])
def mcmc(lower: Lower, model, kernel: str) -> None:
    made = {
        "hmc": lambda: HMC(model, num_steps=8),
        "nuts": lambda: NUTS(model, max_tree_depth=5),
        "nuts_dense": lambda: NUTS(model, dense_mass=True, max_tree_depth=5),
        "barker": lambda: BarkerMH(model),
    }[kernel]()
    state = made.init(jax.random.PRNGKey(0), 20, None, (), {})
    lower("step", lambda s: made.sample(s, (), {}), state)


@case(
    model=[eight_schools, regression, network, gaussian_process],
    guide=[AutoDelta, AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal,
           AutoLowRankMultivariateNormal, AutoIAFNormal, AutoBNAFNormal,
           AutoLaplaceApproximation],
)  # fmt: skip
def variational(lower: Lower, model, guide) -> None:
    made = guide(model)
    loss = TraceMeanField_ELBO() if guide is AutoNormal else Trace_ELBO(3)
    svi = SVI(model, made, numpyro.optim.Adam(1e-2), loss)
    state = svi.init(jax.random.PRNGKey(0))
    lower("step", svi.update, state)
    lower("loss", svi.evaluate, state)


@case(size=[8, 128])
def distributions(lower: Lower, size: int) -> None:
    x, n = floats(size), ints(5, size)
    made = {
        "gamma": (dist.Gamma(2.0, 1.0), x),
        "beta": (dist.Beta(2.0, 3.0), x),
        "von_mises": (dist.VonMises(0.0, 2.0), x),
        "weibull": (dist.Weibull(1.0, 2.0), x),
        "gumbel": (dist.Gumbel(0.0, 1.0), x),
        "logistic": (dist.Logistic(0.0, 1.0), x),
        "pareto": (dist.Pareto(1.0, 2.0), x),
        "truncated": (dist.TruncatedNormal(0.0, 1.0, low=-1.0), x),
        "negative_binomial": (dist.NegativeBinomial2(3.0, 2.0), n),
        "beta_binomial": (dist.BetaBinomial(2.0, 3.0, 5), n),
        "kumaraswamy": (dist.Kumaraswamy(2.0, 3.0), x),
        "soft_laplace": (dist.SoftLaplace(0.0, 1.0), x),
    }
    for name, (d, value) in made.items():
        lower(f"{name}_log_prob", d.log_prob, value)
        lower(f"{name}_sample", lambda k, d=d: d.sample(k, (size,)), key())
