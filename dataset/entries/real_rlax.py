# SPDX-License-Identifier: Apache-2.0
"""Updates of agents at real extents with the losses of rlax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import rlax

from hloenv_cases import Lower, case, floats, ints, normal, uniform, weights


def _torso(params, frames):
    """The convolutions of DQN on frames [batch, 84, 84, 4]."""
    x = frames
    for (kernel, bias), stride in zip(params["convs"], (4, 2, 1), strict=True):
        x = jax.lax.conv_general_dilated(
            *(x, kernel, (stride, stride), "VALID"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = jax.nn.relu(x + bias)
    w, b = params["dense"]
    return jax.nn.relu(x.reshape(x.shape[0], -1) @ w + b)


def _torso_params():
    sizes = ((8, 4, 32), (4, 32, 64), (3, 64, 64))
    return {
        "convs": [(floats(k, k, m, n), floats(n)) for k, m, n in sizes],
        "dense": (floats(3136, 512), floats(512)),
    }


@case(batch=[8])
def dqn(lower: Lower, batch: int) -> None:
    params = weights({**_torso_params(), "head": (floats(512, 18), floats(18))})
    frames = uniform(0, 1, batch, 84, 84, 4)

    def q_values(params, frames):
        w, b = params["head"]
        return _torso(params, frames) @ w + b

    def loss(params, target, before, action, reward, discount, after):
        td = jax.vmap(rlax.double_q_learning)(
            q_values(params, before),
            action,
            reward,
            discount,
            q_values(target, after),
            q_values(params, after),
        )
        return jnp.mean(rlax.huber_loss(td))

    args = (frames, ints(18, batch), floats(batch), uniform(0.99, 0.99, batch), frames)
    lower("q_values", q_values, params, uniform(0, 1, 1, 84, 84, 4))
    lower.loss(loss, params, params, *args, only=["train_step"])


def _mlp(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def _layers(*widths):
    pairs = zip(widths[:-1], widths[1:], strict=True)
    return [(floats(m, n), floats(n)) for m, n in pairs]


@case(width=[256])
def ppo(lower: Lower, width: int) -> None:
    """One epoch over four minibatches of 16 environments by 128 steps."""
    obs, actions, length, envs = 27, 8, 128, 16
    params = weights(
        {
            "policy": _layers(obs, width, width, 2 * actions),
            "value": _layers(obs, width, width, 1),
        }
    )
    gaussian = rlax.gaussian_diagonal()

    def log_prob(params, x, action):
        mean, scale = jnp.split(_mlp(params["policy"], x), 2, -1)
        return gaussian.logprob(action, mean, jax.nn.softplus(scale) + 1e-3)

    def loss(params, x, action, before, advantages, target):
        ratio = jnp.exp(log_prob(params, x, action) - before)
        policy = rlax.clipped_surrogate_pg_loss(ratio, advantages, 0.2)
        value = _mlp(params["value"], x)[..., 0]
        return policy + 0.5 * jnp.mean((value - target) ** 2)

    def update(params, x, action, before, reward, discount):
        values = _mlp(params["value"], x)[..., 0]
        gae = jax.vmap(
            lambda r, d, v: rlax.truncated_generalized_advantage_estimation(
                r, d, 0.95, v
            ),
            1,
            1,
        )
        advantages = gae(reward, discount, values)
        data = (x[:-1], action, before, advantages, values[:-1] + advantages)
        batches = jax.tree.map(lambda a: a.reshape(4, -1, *a.shape[2:]), data)

        def step(params, batch):
            grads = jax.grad(loss)(params, *batch)
            return jax.tree.map(lambda p, g: p - 3e-4 * g, params, grads), ()

        return jax.lax.scan(step, params, batches)[0]

    x = floats(length + 1, envs, obs)
    lower("act", lambda p, x: _mlp(p["policy"], x), params, floats(1024, obs))
    lower(
        "update",
        update,
        params,
        x,
        floats(length, envs, actions),
        normal(length, envs, mean=-10.0),
        floats(length, envs),
        uniform(0.99, 0.99, length, envs),
    )


@case(width=[256])
def recurrent(lower: Lower, width: int) -> None:
    """IMPALA with an LSTM over the convolutions of DQN: a batch of 1, 20 steps."""
    params = weights(
        {
            **_torso_params(),
            "lstm": (floats(512 + width, 4 * width), floats(4 * width)),
            "head": (floats(width, 19), floats(19)),
        }
    )

    def unroll(params, frames):
        w, b = params["lstm"]

        def step(state, x):
            h, c = state
            gates = jnp.concatenate([x, h]) @ w + b
            i, f, g, o = jnp.split(gates, 4)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = (jnp.zeros(width), jnp.zeros(width))
        _, hidden = jax.lax.scan(step, start, _torso(params, frames))
        w, b = params["head"]
        out = hidden @ w + b
        return out[:, :-1], out[:, -1]

    def loss(params, frames, action, reward, discount, before):
        logits, values = unroll(params, frames)
        scores = rlax.batched_index(jax.nn.log_softmax(logits[:-1]), action)
        rho = jax.lax.stop_gradient(jnp.exp(scores - before))
        out = rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], reward, discount, rho
        )
        ones = jnp.ones(len(action))
        policy = rlax.policy_gradient_loss(logits[:-1], action, out.pg_advantage, ones)
        entropy = rlax.entropy_loss(logits[:-1], ones)
        return policy + 0.5 * jnp.mean(out.errors**2) + 0.01 * entropy

    args = (
        uniform(0, 1, 21, 84, 84, 4),
        ints(18, 20),
        floats(20),
        uniform(0.99, 0.99, 20),
        normal(20, mean=-2.9, deviation=0.1),
    )
    lower("forward", unroll, params, args[0])
    lower.loss(loss, params, *args, only=["train_step"])
