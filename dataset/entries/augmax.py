# SPDX-License-Identifier: Apache-2.0
"""Image augmentations of augmax, alone and in chains, over batches."""

from __future__ import annotations

import augmax
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, key

_STEPS = {
    "flip": lambda s: augmax.HorizontalFlip(),
    "vertical": lambda s: augmax.VerticalFlip(),
    "rotate": lambda s: augmax.Rotate((-30, 30)),
    "rotate90": lambda s: augmax.Rotate90(),
    "translate": lambda s: augmax.Translate(3, 3),
    "crop": lambda s: augmax.RandomCrop(s - 4),
    "center": lambda s: augmax.CenterCrop(s - 6),
    "sized": lambda s: augmax.RandomSizedCrop(s - 4),
    "warp": lambda s: augmax.Warp(strength=3, coarseness=8),
    "resize": lambda s: augmax.Resize(s // 2),
    "normalize": lambda s: augmax.Normalize(),
    "brightness": lambda s: augmax.RandomBrightness(),
    "contrast": lambda s: augmax.RandomContrast(),
    "gamma": lambda s: augmax.RandomGamma(),
    "jitter": lambda s: augmax.ColorJitter(),
    "gray": lambda s: augmax.RandomGrayscale(),
    "blur": lambda s: augmax.GaussianBlur(2),
    "shuffle": lambda s: augmax.GridShuffle((4, 4)),
    "channel_gamma": lambda s: augmax.RandomChannelGamma(),
    "solarize": lambda s: augmax.Solarization(),
}
_CHAINS = [
    ("flip", "rotate", "crop", "normalize"),
    ("sized", "jitter", "gray", "normalize"),
    ("warp", "brightness", "contrast"),
    ("rotate90", "shuffle", "blur", "solarize"),
]


@case(name=list(_STEPS), size=[16, 48])
def augmentation(lower: Lower, name: str, size: int) -> None:
    step = augmax.Chain(_STEPS[name](size))
    lower("one", step, key(), floats(size, size, 3))
    lower("batch", jax.vmap(step), floats(4, 2, dtype=jnp.uint32),
          floats(4, size, size, 3))  # fmt: skip


@case(chain=_CHAINS, size=[16, 48])
def chains(lower: Lower, chain, size: int) -> None:
    steps = augmax.Chain(*(_STEPS[name](size) for name in chain))
    images = floats(4, size, size, 3)
    run = jax.vmap(steps)
    lower("batch", run, floats(4, 2, dtype=jnp.uint32), images)
    lower("grad", jax.grad(lambda x, k: jnp.sum(run(k, x) ** 2)), images,
          floats(4, 2, dtype=jnp.uint32))  # fmt: skip
