# SPDX-License-Identifier: Apache-2.0
"""Tree searches of mctx over small learned models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mctx

from hloenv_cases import Lower, case, floats, key

_POLICIES = {
    "muzero": lambda *x, **k: mctx.muzero_policy(*x, **k),
    "gumbel": lambda *x, **k: mctx.gumbel_muzero_policy(*x, **k),
}


@case(policy=list(_POLICIES), simulations=[4, 16], size=[(3, 8, 16), (8, 16, 64)])
def search(lower: Lower, policy: str, simulations: int, size) -> None:
    actions, batch, width = size

    def act(params, seed, state):
        head, value, model = params

        def step(params, seed, action, state):
            one = jax.nn.one_hot(action, actions)
            state = jnp.tanh(jnp.concatenate([state, one], -1) @ model)
            out = mctx.RecurrentFnOutput(
                reward=jnp.sum(state[:, :2], -1),
                discount=jnp.full(batch, 0.99),
                prior_logits=state @ head,
                value=state @ value,
            )
            return out, state

        root = mctx.RootFnOutput(
            prior_logits=state @ head, value=state @ value, embedding=state
        )
        out = _POLICIES[policy](
            params, seed, root, step, num_simulations=simulations, max_depth=5
        )
        return out.action, out.action_weights

    params = (floats(width, actions), floats(width), floats(width + actions, width))
    lower("act", act, params, key(), floats(batch, width))

    def loss(params, seed, state):
        _, weights = act(jax.lax.stop_gradient(params), seed, state)
        scores = jax.nn.log_softmax(state @ params[0])
        return -jnp.mean(jnp.sum(jax.lax.stop_gradient(weights) * scores, -1))

    lower.loss(loss, params, key(), floats(batch, width))
