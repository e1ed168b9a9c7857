# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Probability on JAX: distributions, bijectors, MCMC, filters, solvers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from hloenv_cases import Lower, case, floats, ints, key

tfd, tfb, tfm = tfp.distributions, tfp.bijectors, tfp.mcmc


@case(size=[5, 64])
def distributions(lower: Lower, size: int) -> None:
    x, n = floats(size), ints(5, size)
    v, m = floats(size, 3), floats(3, 3)
    made = {
        "normal": (lambda: tfd.Normal(0.0, 2.0), x),
        "student_t": (lambda: tfd.StudentT(4.0, 0.0, 1.0), x),
        "gamma": (lambda: tfd.Gamma(2.0, 3.0), x),
        "inverse_gamma": (lambda: tfd.InverseGamma(2.0, 3.0), x),
        "beta": (lambda: tfd.Beta(2.0, 3.0), x),
        "dirichlet": (lambda: tfd.Dirichlet(jnp.ones(3)), v),
        "mvn_tril": (lambda: tfd.MultivariateNormalTriL(jnp.zeros(3), jnp.eye(3)), v),
        "mvn_diag": (lambda: tfd.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3)), v),
        "von_mises": (lambda: tfd.VonMises(0.0, 2.0), x),
        "von_mises_fisher": (
            lambda: tfd.VonMisesFisher(jnp.array([1.0, 0.0, 0.0]), 2.0),
            v,
        ),
        "mixture": (
            lambda: tfd.MixtureSameFamily(
                tfd.Categorical(jnp.zeros(4)), tfd.Normal(jnp.arange(4.0), 1.0)
            ),
            x,
        ),
        "poisson": (lambda: tfd.Poisson(3.0), n),
        "negative_binomial": (lambda: tfd.NegativeBinomial(5.0, 0.3), n),
        "binomial": (lambda: tfd.Binomial(10.0, probs=0.3), n),
        "logit_normal": (lambda: tfd.LogitNormal(0.0, 1.0), x),
        "sinh_arcsinh": (lambda: tfd.SinhArcsinh(0.0, 1.0, 0.3), x),
        "johnson": (lambda: tfd.JohnsonSU(0.5, 1.0, 0.0, 1.0), x),
        "gev": (lambda: tfd.GeneralizedExtremeValue(0.0, 1.0, 0.1), x),
        "moyal": (lambda: tfd.Moyal(0.0, 1.0), x),
        "wishart": (lambda: tfd.WishartTriL(5.0, jnp.eye(3)), m),
        "lkj": (lambda: tfd.CholeskyLKJ(3, 2.0), m),
        "truncated": (lambda: tfd.TruncatedNormal(0.0, 1.0, -1.0, 2.0), x),
        "skew": (lambda: tfd.TwoPieceNormal(0.0, 1.0, 2.0), x),
    }
    for name, (make, value) in made.items():
        lower(f"{name}_log_prob", lambda v, f=make: f().log_prob(v), value)
        lower(f"{name}_sample", lambda k, f=make: f().sample(size, seed=k), key())
        if value is x:
            loss = lambda v, f=make: jnp.sum(f().log_prob(v))
            lower(f"{name}_grad", jax.grad(loss), value)


@case(size=[6, 32])
def bijectors(lower: Lower, size: int) -> None:
    x = floats(4, size)
    made = {
        "softplus": tfb.Softplus,
        "sigmoid": tfb.Sigmoid,
        "softmax": tfb.SoftmaxCentered,
        "tanh": tfb.Tanh,
        "weibull": lambda: tfb.WeibullCDF(2.0, 1.0),
        "gumbel": tfb.GumbelCDF,
        "sinh": lambda: tfb.SinhArcsinh(0.2, 1.1),
        "ordered": tfb.Ascending,
        "cumsum": tfb.Cumsum,
        "chain": lambda: tfb.Chain([tfb.Exp(), tfb.Scale(2.0), tfb.Shift(1.0)]),
        "spline": lambda: tfb.RationalQuadraticSpline(
            jnp.full((size, 4), 0.5),
            jnp.full((size, 4), 0.5),
            jnp.ones((size, 3)),
            -1.0,
        ),
        "power": lambda: tfb.PowerTransform(0.3),
        "lambert": lambda: tfb.LambertWTail(0.0, 1.0, 0.1),
        "householder": lambda: tfb.Householder(jnp.ones(size)),
    }
    for name, make in made.items():

        def both(x, make=make):
            y = make().forward(x)
            return y, make().forward_log_det_jacobian(x, event_ndims=1)

        lower(f"{name}_forward", both, x)
        lower(f"{name}_inverse", lambda x, f=make: f().inverse(x), x)


def _target(x):
    return -0.5 * jnp.sum(x**2) - jnp.sum(jnp.log1p(jnp.exp(x[:-1] - x[1:])))


_KERNELS = {
    "hmc": lambda: tfm.HamiltonianMonteCarlo(_target, 0.1, 5),
    "nuts": lambda: tfm.NoUTurnSampler(_target, 0.1, max_tree_depth=4),
    "mala": lambda: tfm.MetropolisAdjustedLangevinAlgorithm(_target, 0.1),
    "langevin": lambda: tfm.UncalibratedLangevin(_target, 0.1),
    "walk": lambda: tfm.RandomWalkMetropolis(_target),
    "slice": lambda: tfm.SliceSampler(_target, 0.5, 5),
    "adaptive": lambda: tfm.DualAveragingStepSizeAdaptation(
        tfm.HamiltonianMonteCarlo(_target, 0.1, 5), 100
    ),
    "tempering": lambda: tfm.ReplicaExchangeMC(
        _target,
        lambda f: tfm.HamiltonianMonteCarlo(f, 0.1, 3),
        inverse_temperatures=jnp.array([1.0, 0.5, 0.2]),
    ),
    "transformed": lambda: tfm.TransformedTransitionKernel(
        tfm.HamiltonianMonteCarlo(_target, 0.1, 5), tfb.Softplus()
    ),
    "simple": lambda: tfm.SimpleStepSizeAdaptation(
        tfm.HamiltonianMonteCarlo(_target, 0.1, 5), 100
    ),
}


@case(name=list(_KERNELS), size=[4, 16])
def mcmc(lower: Lower, name: str, size: int) -> None:
    kernel = _KERNELS[name]()
    x = np.zeros(size, np.float32)

    def step(x, seed):
        results = kernel.bootstrap_results(x)
        return kernel.one_step(x, results, seed=seed)[0]

    def chain(x, seed):
        return tfm.sample_chain(
            20, x, kernel=kernel, trace_fn=None, num_burnin_steps=5, seed=seed
        )

    lower("step", step, x, key())
    lower("chain", chain, x, key())


@case(steps=[8, 30], states=[2, 4])
def state_space(lower: Lower, steps: int, states: int) -> None:
    def kalman(x):
        model = tfd.LinearGaussianStateSpaceModel(
            steps,
            0.9 * jnp.eye(states),
            tfd.MultivariateNormalDiag(jnp.zeros(states), 0.1 * jnp.ones(states)),
            jnp.ones((1, states)),
            tfd.MultivariateNormalDiag(jnp.zeros(1), jnp.ones(1)),
            tfd.MultivariateNormalDiag(jnp.zeros(states), jnp.ones(states)),
        )
        return model.log_prob(x)

    def hmm(x):
        model = tfd.HiddenMarkovModel(
            tfd.Categorical(jnp.zeros(states)),
            tfd.Categorical(jnp.eye(states)),
            tfd.Normal(jnp.arange(states, dtype=jnp.float32), 1.0),
            steps,
        )
        return model.log_prob(x), model.posterior_mode(x)

    lower("kalman", kalman, floats(steps, 1))
    lower("kalman_grad", jax.grad(kalman), floats(steps, 1))
    lower("hmm", hmm, floats(steps))
    lower("hmm_grad", jax.grad(lambda x: hmm(x)[0]), floats(steps))


@case(n=[6, 20])
def processes(lower: Lower, n: int) -> None:
    x, y, z = floats(n, 2), floats(n), floats(5, 2)
    kernels = tfp.math.psd_kernels
    made = {
        "rbf": kernels.ExponentiatedQuadratic,
        "matern": kernels.MaternFiveHalves,
        "rational": kernels.RationalQuadratic,
        "periodic": kernels.ExpSinSquared,
    }
    for name, make in made.items():

        def evidence(scale, x, y, make=make):
            kernel = make(length_scale=scale)
            return tfd.GaussianProcess(
                kernel, x, observation_noise_variance=0.1
            ).log_prob(y)

        def predict(x, y, z, make=make):
            return tfd.GaussianProcessRegressionModel(
                make(), z, x, y, observation_noise_variance=0.1
            ).mean()

        lower(f"{name}_evidence", evidence, floats(), x, y)
        lower(f"{name}_grad", jax.grad(evidence), floats(), x, y)
        lower(f"{name}_predict", predict, x, y, z)


@case(n=[3, 12])
def optimizers(lower: Lower, n: int) -> None:
    def value(x):
        return jnp.sum((x[1:] - x[:-1] ** 2) ** 2) + jnp.sum((1 - x) ** 2)

    def both(x):
        return tfp.math.value_and_gradient(value, x)

    x = floats(n)
    search = tfp.optimizer
    lower(
        "bfgs", lambda x: search.bfgs_minimize(both, x, max_iterations=20).position, x
    )
    lower(
        "lbfgs", lambda x: search.lbfgs_minimize(both, x, max_iterations=20).position, x
    )
    lower("simplex", lambda x: search.nelder_mead_minimize(
        value, initial_vertex=x, max_iterations=30).position, x)  # fmt: skip
    lower("ode", lambda x: tfp.math.ode.DormandPrince().solve(
        lambda t, y: -y + jnp.sin(t), 0.0, x, [1.0]).states, x)  # fmt: skip
    lower("secant", lambda x: tfp.math.secant_root(jnp.cos, x)[0], x)
    lower("chandrupatla", lambda x: tfp.math.find_root_chandrupatla(
        lambda y: y**3 - 1.0, x - 3.0, x + 3.0)[0], x)  # fmt: skip
