# SPDX-License-Identifier: Apache-2.0
"""Environments and training losses of brax."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from brax import envs
from brax.training import types
from brax.training.agents.ppo import losses as ppo_losses
from brax.training.agents.ppo import networks as ppo_networks
from brax.training.agents.sac import losses as sac_losses
from brax.training.agents.sac import networks as sac_networks

from hloenv_cases import Lower, adam, adam_state, case, floats, key


@case(
    name=["fast", "inverted_pendulum", "inverted_double_pendulum", "reacher", "hopper",
          "ant", "halfcheetah", "walker2d", "pusher", "humanoid"],
    backend=["spring", "positional", "generalized"],
)  # fmt: skip
def environment(lower: Lower, name: str, backend: str) -> None:
    env = envs.get_environment(name, backend=backend)
    state = lower.shapes(env.reset, key())
    action = floats(env.action_size)
    lower("reset", env.reset, key())
    lower("step", env.step, state, action)
    if name not in ("fast", "reacher", "ant"):
        return
    batched = envs.training.wrap(env, episode_length=100)
    many = lower.shapes(batched.reset, floats(4, 2, dtype="uint32"))
    lower("wrapped_step", batched.step, many, floats(4, env.action_size))

    def rollout(state, actions):
        def step(state, action):
            state = env.step(state, action)
            return state, state.reward

        return jax.lax.scan(step, state, actions)

    lower("rollout", rollout, state, floats(10, env.action_size))


def _transition(batch, obs, actions, extras):
    return types.Transition(
        observation=floats(*batch, obs),
        action=floats(*batch, actions),
        reward=floats(*batch),
        discount=floats(*batch),
        next_observation=floats(*batch, obs),
        extras=extras,
    )


@case(sizes=[(8, 2, (32, 32)), (27, 8, (64, 64, 64))])
def ppo(lower: Lower, sizes) -> None:
    obs, actions, hidden = sizes
    networks = ppo_networks.make_ppo_networks(
        obs, actions, policy_hidden_layer_sizes=hidden, value_hidden_layer_sizes=hidden
    )
    params = ppo_losses.PPONetworkParams(
        policy=lower.shapes(networks.policy_network.init, key()),
        value=lower.shapes(networks.value_network.init, key()),
    )
    batch = (4, 10)
    extras = {
        "policy_extras": {
            "raw_action": floats(*batch, actions),
            "log_prob": floats(*batch),
            "distribution_params": floats(*batch, 2 * actions),
        },
        "state_extras": {"truncation": floats(*batch)},
    }
    data = _transition(batch, obs, actions, extras)
    loss = functools.partial(ppo_losses.compute_ppo_loss, ppo_network=networks)

    def value(params, data, rng):
        return loss(params, None, data, rng)[0]

    def train_step(params, moments, data, rng):
        error, grads = jax.value_and_grad(value)(params, data, rng)
        return *adam(grads, moments, params), error

    lower("loss", value, params, data, key())
    lower("grad", jax.grad(value), params, data, key())
    lower("train_step", train_step, params, adam_state(params), data, key())
    lower("gae", lambda *x: ppo_losses.compute_gae(*x), floats(10, 4), floats(10, 4),
          floats(10, 4), floats(10, 4), floats(4))  # fmt: skip
    policy = ppo_networks.make_inference_fn(networks)
    lower("act", lambda p, o, k: policy((None, p))(o, k), params.policy,
          floats(16, obs), key())  # fmt: skip


@case(sizes=[(8, 2, (32, 32)), (27, 8, (64, 64, 64))])
def sac(lower: Lower, sizes) -> None:
    obs, actions, hidden = sizes
    networks = sac_networks.make_sac_networks(obs, actions, hidden_layer_sizes=hidden)
    policy = lower.shapes(networks.policy_network.init, key())
    q = lower.shapes(networks.q_network.init, key())
    extras = {"state_extras": {"truncation": floats(32)}, "policy_extras": {}}
    data = _transition((32,), obs, actions, extras)
    alpha, critic, actor = sac_losses.make_losses(networks, 1.0, 0.99, actions)
    temperature = floats()
    lower("alpha", jax.grad(alpha), temperature, policy, None, data, key())
    lower("critic", jax.grad(critic), q, policy, None, q, temperature, data, key())
    lower("actor", jax.grad(actor), policy, None, q, temperature, data, key())

    def train_step(policy, q, target, log_alpha, moments, data, rng):
        tree = jax.tree.map
        alpha_grad = jax.grad(alpha)(log_alpha, policy, None, data, rng)
        scale = jnp.exp(log_alpha)
        q_grad = jax.grad(critic)(q, policy, None, target, scale, data, rng)
        actor_grad = jax.grad(actor)(policy, None, q, scale, data, rng)
        new, moments = adam(
            (alpha_grad, q_grad, actor_grad), moments, (log_alpha, q, policy)
        )
        target = tree(lambda t, p: 0.995 * t + 0.005 * p, target, new[1])
        return new, target, moments

    state = adam_state((temperature, q, policy))
    lower("train_step", train_step, policy, q, q, temperature, state, data, key())
