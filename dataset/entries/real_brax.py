# SPDX-License-Identifier: Apache-2.0
"""Many environments of brax at once, and updates of agents on real batches."""

from __future__ import annotations

import functools

import jax
from brax import envs
from brax.training import types
from brax.training.agents.ppo import losses as ppo_losses
from brax.training.agents.ppo import networks as ppo_networks

from hloenv_cases import (
    Lower,
    adam,
    adam_state,
    case,
    floats,
    key,
    normal,
    uniform,
    weights,
)


@case(name=["ant"], num=[64])
def environments(lower: Lower, name: str, num: int) -> None:
    """A reset, and a step from it: every state is one that the physics reaches."""
    env = envs.get_environment(name, backend="spring")

    def reset_and_step(keys, actions):
        state = jax.vmap(env.reset)(keys)
        state = jax.vmap(env.step)(state, actions)
        return state.obs, state.reward, state.done

    keys = floats(num, 2, dtype="uint32")
    actions = uniform(-1, 1, num, env.action_size)
    lower("step", reset_and_step, keys, actions)


@case(sizes=[(87, 8, 256, 32, 32)])
def ppo(lower: Lower, sizes) -> None:
    """A minibatch of 32 environments by 32 steps."""
    obs, actions, width, *batch = sizes
    hidden = (width,) * 3
    networks = ppo_networks.make_ppo_networks(
        obs, actions, policy_hidden_layer_sizes=hidden, value_hidden_layer_sizes=hidden
    )
    params = ppo_losses.PPONetworkParams(
        policy=weights(lower.shapes(networks.policy_network.init, key())),
        value=weights(lower.shapes(networks.value_network.init, key())),
    )
    extras = {
        "policy_extras": {
            "raw_action": floats(*batch, actions),
            "log_prob": normal(*batch, mean=-10.0),
            "distribution_params": floats(*batch, 2 * actions),
        },
        "state_extras": {"truncation": uniform(0, 0, *batch)},
    }
    data = types.Transition(
        observation=floats(*batch, obs),
        action=uniform(-1, 1, *batch, actions),
        reward=floats(*batch),
        discount=uniform(0.99, 0.99, *batch),
        next_observation=floats(*batch, obs),
        extras=extras,
    )
    loss = functools.partial(ppo_losses.compute_ppo_loss, ppo_network=networks)

    def train_step(params, moments, data, rng):
        value = lambda p: loss(p, None, data, rng)[0]
        error, grads = jax.value_and_grad(value)(params)
        return *adam(grads, moments, params), error

    lower("train_step", train_step, params, adam_state(params), data, key())
    policy = ppo_networks.make_inference_fn(networks)
    lower("act", lambda p, o, k: policy((None, p))(o, k)[0], params.policy,
          floats(1024, obs), key())  # fmt: skip
