# SPDX-License-Identifier: Apache-2.0
"""Grid worlds of xminigrid: resets, steps, rollouts of random actions."""

from __future__ import annotations

import jax
import xminigrid

from hloenv_cases import Lower, case, ints, key

_NAMES = [
    "MiniGrid-Empty-8x8",
    "MiniGrid-DoorKey-6x6",
    "MiniGrid-FourRooms",
    "MiniGrid-LockedRoom",
    "MiniGrid-MemoryS16",
    "MiniGrid-UnlockPickUp",
    "XLand-MiniGrid-R1-9x9",
    "XLand-MiniGrid-R4-13x13",
]


@case(name=_NAMES)
def world(lower: Lower, name: str) -> None:
    env, params = xminigrid.make(name)

    def reset(seed):
        return env.reset(params, jax.random.wrap_key_data(seed)).observation

    def step(seed, action):
        first = env.reset(params, jax.random.wrap_key_data(seed))
        then = env.step(params, first, action)
        return then.observation, then.reward, then.discount

    def rollout(seed):
        reset_key, action_key = jax.random.split(jax.random.wrap_key_data(seed))

        def body(timestep, k):
            action = jax.random.randint(k, (), 0, env.num_actions(params))
            timestep = env.step(params, timestep, action)
            return timestep, (timestep.observation, timestep.reward)

        first = env.reset(params, reset_key)
        return jax.lax.scan(body, first, jax.random.split(action_key, 20))[1]

    lower("reset", reset, key())
    # Two actions, of which one is taken: so the range of all is known.
    lower("reset_and_step", lambda k, a: step(k, a[0]), key(), ints(6, 2))
    lower("rollout", rollout, key())
    seeds = jax.ShapeDtypeStruct((16, 2), key().dtype)
    lower("rollouts", jax.vmap(rollout), seeds)
