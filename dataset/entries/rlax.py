# SPDX-License-Identifier: Apache-2.0
"""The losses and returns of rlax, and whole updates of small agents with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import rlax

from hloenv_cases import Lower, case, floats, ints, key


@case(batch=[4, 32], actions=[3, 18])
def q_learning(lower: Lower, batch: int, actions: int) -> None:
    q, a = floats(batch, actions), ints(actions, batch)
    r, discount = floats(batch), floats(batch)
    rules = {
        "q_learning": (rlax.q_learning, (q, a, r, discount, q)),
        "double_q": (rlax.double_q_learning, (q, a, r, discount, q, q)),
        "sarsa": (rlax.sarsa, (q, a, r, discount, q, a)),
        "expected_sarsa": (rlax.expected_sarsa, (q, a, r, discount, q, q)),
        "persistent": (
            lambda *x: rlax.persistent_q_learning(*x, 0.9),
            (q, a, r, discount, q),
        ),
    }
    for name, (rule, args) in rules.items():

        def loss(q, *rest, rule=rule):
            return jnp.mean(rlax.l2_loss(jax.vmap(rule)(q, *rest)))

        lower(name, jax.vmap(rule), *args)
        lower(f"{name}_grad", jax.grad(loss), *args)


@case(atoms=[11, 51], batch=[4, 32])
def distributional(lower: Lower, atoms: int, batch: int) -> None:
    logits, a = floats(batch, 4, atoms), ints(4, batch)
    r, discount, support = floats(batch), floats(batch), floats(atoms)

    def c51(logits, a, r, discount, target, q, support):
        rule = jax.vmap(
            rlax.categorical_double_q_learning, (None, 0, 0, 0, 0, None, 0, 0)
        )
        return jnp.mean(rule(support, logits, a, r, discount, support, target, q))

    args = (logits, a, r, discount, logits, floats(batch, 4), support)
    lower("c51", c51, *args)
    lower("c51_grad", jax.grad(c51), *args)

    def quantile(dist, a, r, discount, target):
        dist, target = jnp.swapaxes(dist, 1, 2), jnp.swapaxes(target, 1, 2)
        levels = jnp.broadcast_to((jnp.arange(atoms) + 0.5) / atoms, (batch, atoms))
        rule = jax.vmap(lambda *x: rlax.quantile_q_learning(*x, huber_param=1.0))
        return jnp.mean(rule(dist, levels, a, r, discount, target, target))

    lower("quantile", quantile, logits, a, r, discount, logits)
    lower("quantile_grad", jax.grad(quantile), logits, a, r, discount, logits)
    lower(
        "projection",
        jax.vmap(rlax.categorical_l2_project, (0, 0, None)),
        floats(batch, atoms),
        floats(batch, atoms),
        support,
    )


@case(length=[8, 40])
def returns(lower: Lower, length: int) -> None:
    r, discount, v = floats(length), floats(length), floats(length)
    rules = {
        "discounted": (rlax.discounted_returns, (r, discount, v)),
        "lambda": (lambda r, d, v: rlax.lambda_returns(r, d, v, 0.9), (r, discount, v)),
        "n_step": (
            lambda r, d, v: rlax.n_step_bootstrapped_returns(r, d, v, 3),
            (r, discount, v),
        ),
        "td_lambda": (
            lambda v, r, d, w: rlax.td_lambda(v, r, d, w, 0.9),
            (v, r, discount, v),
        ),
        "gae": (
            lambda r, d, v: rlax.truncated_generalized_advantage_estimation(
                r, d, 0.95, v
            ),
            (r, discount, floats(length + 1)),
        ),
        "vtrace": (
            lambda v, w, r, d, rho: rlax.vtrace_td_error_and_advantage(v, w, r, d, rho),
            (v, v, r, discount, v),
        ),
        "leaky_vtrace": (
            lambda v, w, r, d, rho: rlax.leaky_vtrace(v, w, r, d, rho, 0.5),
            (v, v, r, discount, v),
        ),
        "retrace": (
            lambda q, p, a, b, r, d, pi, mu: rlax.retrace(
                q, p, a, b, r, d, pi, mu, 0.9
            ),
            (
                floats(length, 4),
                floats(length, 4),
                ints(4, length),
                ints(4, length),
                r,
                discount,
                floats(length, 4),
                floats(length),
            ),
        ),
    }
    for name, (rule, args) in rules.items():
        lower(name, rule, *args)
        many = [floats(16, *x.shape) if x.dtype.kind == "f" else None for x in args]
        if None not in many:
            lower(f"{name}_vmap", jax.vmap(rule), *many)


def _policy(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    out = x @ w + b
    return out[..., :-1], out[..., -1]


@case(widths=[(8, 32, 5), (16, 64, 64, 19)], length=[10, 20])
def agents(lower: Lower, widths, length: int) -> None:
    pairs = zip(widths[:-1], widths[1:], strict=True)
    params = [(floats(m, n), floats(n)) for m, n in pairs]
    actions = widths[-1] - 1
    obs, a = floats(length + 1, widths[0]), ints(actions, length)
    r, discount, logp = floats(length), floats(length), floats(length)

    def impala(params, obs, a, r, discount, behaviour):
        logits, values = _policy(params, obs)
        rho = jnp.exp(
            rlax.batched_index(jax.nn.log_softmax(logits[:-1]), a) - behaviour
        )
        out = rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], r, discount, jax.lax.stop_gradient(rho)
        )
        weights = jnp.ones(length)
        policy = rlax.policy_gradient_loss(logits[:-1], a, out.pg_advantage, weights)
        entropy = rlax.entropy_loss(logits[:-1], weights)
        return policy + 0.5 * jnp.mean(out.errors**2) + 0.01 * entropy

    def ppo(params, obs, a, r, discount, behaviour):
        logits, values = _policy(params, obs)
        advantages = rlax.truncated_generalized_advantage_estimation(
            r, discount, 0.95, jax.lax.stop_gradient(values)
        )
        ratio = jnp.exp(
            rlax.batched_index(jax.nn.log_softmax(logits[:-1]), a) - behaviour
        )
        clipped = rlax.clipped_surrogate_pg_loss(ratio, advantages, 0.2)
        target = jax.lax.stop_gradient(values[:-1] + advantages)
        return clipped + 0.5 * jnp.mean((values[:-1] - target) ** 2)

    def a2c(params, obs, a, r, discount, behaviour):
        logits, values = _policy(params, obs)
        errors = rlax.td_lambda(values[:-1], r, discount, values[1:], 0.9)
        weights = jnp.exp(behaviour * 0)
        policy = rlax.policy_gradient_loss(
            logits[:-1], a, jax.lax.stop_gradient(errors), weights
        )
        return policy + jnp.mean(errors**2)

    for name, loss in (("impala", impala), ("ppo", ppo), ("a2c", a2c)):
        lower.loss(loss, params, obs, a, r, discount, logp, prefix=f"{name}_")


@case(size=[4, 64])
def distributions(lower: Lower, size: int) -> None:
    logits = floats(8, size)
    for name, make in {
        "softmax": lambda: rlax.softmax(0.5),
        "epsilon_greedy": lambda: rlax.epsilon_greedy(0.1),
        "greedy": rlax.greedy,
        "clipped_entropy": lambda: rlax.clipped_entropy_softmax(0.5, 0.1),
    }.items():
        d = make()
        lower(f"{name}_sample", d.sample, key(), logits)
        lower(f"{name}_entropy", d.entropy, logits)
    g = rlax.gaussian_diagonal()
    lower("gaussian_sample", g.sample, key(), logits, logits)
    lower("gaussian_logprob", g.logprob, logits, logits, logits)
    pair = (floats(8, size), floats(8, size))
    lower("kl", jax.vmap(rlax.categorical_kl_divergence), *pair)
    lower("hyperbolic", lambda x: rlax.signed_hyperbolic(x), logits)
    lower("two_hot", lambda x: rlax.transform_to_2hot(x, -3.0, 3.0, 31), logits)
    lower("pixel_control", rlax.pixel_control_rewards, floats(9, 16, 16, 3), 4,
          static_argnums=1)  # fmt: skip
