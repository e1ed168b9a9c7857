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


@case(classes=[32000])
def losses(lower: Lower, classes: int) -> None:
    def speech(logits, labels, pads):
        return jnp.mean(optax.ctc_loss(logits, pads[0], labels, pads[1]))

    pads = (uniform(0, 0, 8, 100), uniform(0, 0, 8, 24))
    labels = ints(29, 8, 24, low=1)
    lower("ctc_grad", jax.grad(speech), floats(8, 100, 29), labels, pads)

    def language(logits, labels):
        found = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return jnp.mean(found)

    args = (floats(128, classes), ints(classes, 128))
    lower("cross_entropy_grad", jax.grad(language), *args)
