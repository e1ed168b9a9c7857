# SPDX-License-Identifier: Apache-2.0
"""Updates of optax's optimizers over millions of parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from hloenv_cases import Lower, case, floats, ints, normal, uniform, weights

_RULES = {
    "adamw": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-2)
    ),
    "lion": lambda: optax.lion(1e-4),
    "lamb": lambda: optax.lamb(1e-3),
    "adafactor": lambda: optax.adafactor(1e-3),
}


def _state(state):
    """Second moments are positive, step numbers in the hundreds."""

    def drawn(path, leaf):
        name = jax.tree_util.keystr(path)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return ints(101, *leaf.shape, low=100)
        if ".nu" in name or ".v" in name:
            return uniform(1e-7, 1e-6, *leaf.shape)
        return normal(*leaf.shape, deviation=1e-3)

    return jax.tree_util.tree_map_with_path(drawn, state)


@case(rule=list(_RULES), size=[(512, 2048, 2)])
def transformer_update(lower: Lower, rule: str, size) -> None:
    """Parameters of transformer layers: six million."""
    width, inner, depth = size
    layer = {
        "attention": {n: floats(width, width) for n in ("q", "k", "v", "out")},
        "up": {"w": floats(width, inner), "bias": floats(inner)},
        "down": {"w": floats(inner, width), "bias": floats(width)},
        "scale": floats(width),
    }
    params = weights([layer] * depth)
    made = _RULES[rule]()
    state = _state(lower.shapes(made.init, params))
    grads = jax.tree.map(lambda p: normal(*p.shape, deviation=1e-3), params)

    def update(grads, state, params):
        updates, state = made.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    lower("update", update, grads, state, params)


@case(batch=[64], loss=["ctc", "hinge"])
def losses(lower: Lower, batch: int, loss: str) -> None:
    if loss == "ctc":
        labels, pads = ints(29, 8, 24, low=1), uniform(0, 0, 8, 24)
        function = lambda x, y, p: jnp.mean(
            optax.ctc_loss(x, jnp.zeros(x.shape[:2]), y, p)
        )
        args = (floats(8, 100, 29), labels, pads)
    else:
        function = lambda x, y: jnp.mean(optax.multiclass_hinge_loss(x, y))
        args = (floats(batch * 16, 1000), ints(1000, batch * 16))
    lower("grad", jax.grad(function), *args)
