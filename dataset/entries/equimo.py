# SPDX-License-Identifier: Apache-2.0
"""Vision models of equimo, narrow: features, classification, training."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from equimo.layers.mamba import Mamba2Mixer
from equimo.models.convnext import convnext_t
from equimo.models.mobilenet import mobilenetv3_small
from equimo.models.vit import VisionTransformer

from hloenv_cases import Lower, case, floats, ints, weights


def _vit(**options):
    return lambda k: VisionTransformer(
        img_size=64,
        in_channels=3,
        dim=128,
        patch_size=8,
        num_heads=4,
        depths=[3],
        num_classes=10,
        key=k,
        **options,
    )


_MODELS = {
    "vit": _vit(),
    "vit_rope": _vit(use_local_pos_embed=True, use_global_pos_embed=False),
    "vit_qk_norm": _vit(qk_norm=True, ffn_layer="swiglu", norm_layer="rmsnorm"),
    "vit_scaled": _vit(init_values=0.1, global_pool="token"),
    "convnext": lambda k: convnext_t(
        dims=[24, 48, 96, 192], depths=[1, 1, 2, 1], num_classes=10, key=k
    ),
    "mobilenet": lambda k: mobilenetv3_small(num_classes=10, key=k),
}


def _parts(make):
    model = eqx.filter_eval_shape(make, jax.random.PRNGKey(0))
    is_float = lambda a: (
        isinstance(a, jax.ShapeDtypeStruct) and jnp.issubdtype(a.dtype, jnp.floating)
    )
    params, static = eqx.partition(model, is_float)
    return weights(params, output_axis=0), static


@case(name=list(_MODELS), batch=[1, 4])
def classifier(lower: Lower, name: str, batch: int) -> None:
    params, static = _parts(_MODELS[name])
    x, labels = floats(batch, 3, 64, 64), ints(10, batch)

    def forward(params, x):
        model = eqx.combine(params, static)
        seed = jax.random.PRNGKey(0)
        return jax.vmap(lambda x: model(x, key=seed, inference=True))(x)

    def loss(params, x, labels):
        scores = jax.nn.log_softmax(forward(params, x))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], -1))

    lower("forward", forward, params, x)
    if batch > 1:
        lower.loss(loss, params, x, labels, only=["grad", "train_step"])


@case(width=[64])
def mamba(lower: Lower, width: int) -> None:
    params, static = _parts(lambda k: Mamba2Mixer(width, key=k))
    x = floats(64, width)

    def forward(params, x):
        return eqx.combine(params, static)(x, key=jax.random.PRNGKey(0))

    lower("forward", forward, params, x)
    lower("grad", jax.grad(lambda p, x: jnp.sum(forward(p, x) ** 2)), params, x)
