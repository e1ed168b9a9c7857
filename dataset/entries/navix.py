# SPDX-License-Identifier: Apache-2.0
"""Grid worlds of navix: resets, steps, many at a time, rollouts, observations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import navix as nx

from hloenv_cases import Lower, case, floats, ints, key

_NAMES = [
    "Navix-Empty-8x8-v0",
    "Navix-Empty-Random-6x6-v0",
    "Navix-DoorKey-6x6-v0",
    "Navix-DoorKey-Random-8x8-v0",
    "Navix-FourRooms-v0",
    "Navix-KeyCorridorS3R2-v0",
    "Navix-LavaGapS6-v0",
    "Navix-SimpleCrossingS9N2-v0",
    "Navix-Dynamic-Obstacles-6x6-v0",
    "Navix-GoToDoor-6x6-v0",
    "Navix-DistShift1-v0",
]


@case(name=_NAMES)
def environment(lower: Lower, name: str) -> None:
    env = nx.make(name, observation_fn=nx.observations.symbolic_first_person)
    num = len(env.action_set)

    def reset_and_step(seed, action):
        state = env.step(env.reset(seed), action)
        return state.observation, state.reward, state.step_type

    def rollout(seed, actions):
        def step(state, action):
            state = env.step(state, action)
            return state, state.reward

        return jax.lax.scan(step, env.reset(seed), actions)[1]

    lower("reset", lambda seed: env.reset(seed).observation, key())
    lower("step", reset_and_step, key(), ints(num))
    many = floats(16, 2, dtype="uint32")
    lower("steps", jax.vmap(reset_and_step), many, ints(num, 16))
    if name in (_NAMES[0], _NAMES[2], _NAMES[4], _NAMES[8]):
        lower("rollout", rollout, key(), ints(num, 20))


@case(kind=["symbolic", "symbolic_first_person", "categorical"])
def observation(lower: Lower, kind: str) -> None:
    env = nx.make("Navix-DoorKey-8x8-v0", observation_fn=getattr(nx.observations, kind))

    def observed(seeds):
        return jax.vmap(lambda s: jnp.asarray(env.reset(s).observation))(seeds)

    lower("observe", observed, floats(8, 2, dtype="uint32"))
