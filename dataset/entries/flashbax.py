# SPDX-License-Identifier: Apache-2.0
"""Replay buffers of flashbax: adding and sampling, with and without priorities."""

from __future__ import annotations

import flashbax as fbx
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, ints, key, uniform

_MAKE = {
    "flat": lambda: fbx.make_flat_buffer(512, 32, 32, True, 8),
    "item": lambda: fbx.make_item_buffer(512, 32, 32, True, True),
    "trajectory": lambda: fbx.make_trajectory_buffer(
        add_batch_size=8,
        sample_batch_size=32,
        sample_sequence_length=10,
        period=5,
        min_length_time_axis=20,
        max_length_time_axis=64,
    ),
    "prioritised_flat": lambda: fbx.make_prioritised_flat_buffer(
        512, 32, 32, True, 8, priority_exponent=0.6, device="cpu"
    ),
    "prioritised_trajectory": lambda: fbx.make_prioritised_trajectory_buffer(
        add_batch_size=8,
        sample_batch_size=32,
        sample_sequence_length=10,
        period=5,
        min_length_time_axis=20,
        max_length_time_axis=64,
        priority_exponent=0.6,
        device="cpu",
    ),
}


def _item():
    return {
        "observation": floats(24),
        "action": ints(6),
        "reward": floats(),
        "done": floats(dtype="bool"),
    }


@case(name=list(_MAKE))
def buffer(lower: Lower, name: str) -> None:
    made = _MAKE[name]()
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), _item())
    state = made.init(zeros)
    lead = (8, 16)
    batch = jax.tree.map(lambda a: floats(*lead, *a.shape, dtype=a.dtype), _item())
    batch["action"] = ints(6, *lead)

    def fill_and_sample(batch, seed):
        full = made.add(made.add(state, batch), batch)
        return made.sample(full, seed).experience

    lower("add", lambda s, b: made.add(s, b), state, batch)
    lower("sample", lambda s, k: made.sample(s, k).experience, state, key())
    lower("fill_and_sample", fill_and_sample, batch, key())
    if name.startswith("prioritised"):

        def reprioritise(batch, seed, priorities):
            full = made.add(made.add(state, batch), batch)
            sampled = made.sample(full, seed)
            full = made.set_priorities(full, sampled.indices, priorities)
            return made.sample(full, seed).experience

        args = (batch, key(), uniform(0.1, 2.0, 32))
        lower("reprioritise", reprioritise, *args)
