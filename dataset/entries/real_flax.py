# SPDX-License-Identifier: Apache-2.0
"""Image models at real extents, written with flax.linen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn

from hloenv_cases import Lower, adam, adam_state, case, floats, ints, key, weights


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


class BasicBlock(nn.Module):
    width: int
    stride: int
    train: bool

    @nn.compact
    def __call__(self, x):
        def norm(x):
            return nn.BatchNorm(use_running_average=not self.train)(x)

        stride = (self.stride, self.stride)
        y = nn.relu(norm(nn.Conv(self.width, (3, 3), stride, use_bias=False)(x)))
        y = norm(nn.Conv(self.width, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm(nn.Conv(self.width, (1, 1), stride, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet18(nn.Module):
    train: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not self.train)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage in range(4):
            for i in range(2):
                stride = 2 if stage and not i else 1
                x = BasicBlock(64 << stage, stride, self.train)(x)
        return nn.Dense(1000)(jnp.mean(x, (1, 2)))


class InvertedResidual(nn.Module):
    width: int
    stride: int
    expand: int
    train: bool

    @nn.compact
    def __call__(self, x):
        def norm(x):
            return nn.BatchNorm(use_running_average=not self.train)(x)

        inner = x.shape[-1] * self.expand
        y = x
        if self.expand > 1:
            y = nn.relu6(norm(nn.Conv(inner, (1, 1), use_bias=False)(y)))
        depthwise = nn.Conv(
            inner,
            (3, 3),
            (self.stride, self.stride),
            feature_group_count=inner,
            use_bias=False,
        )
        y = nn.relu6(norm(depthwise(y)))
        y = norm(nn.Conv(self.width, (1, 1), use_bias=False)(y))
        return x + y if x.shape == y.shape else y


class MobileNetV2(nn.Module):
    train: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(32, (3, 3), (2, 2), use_bias=False)(x)
        x = nn.relu6(nn.BatchNorm(use_running_average=not self.train)(x))
        stages = (
            *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
            *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
        )
        for expand, width, depth, stride in stages:
            for i in range(depth):
                x = InvertedResidual(width, 1 if i else stride, expand, self.train)(x)
        x = nn.Conv(1280, (1, 1), use_bias=False)(x)
        x = nn.relu6(nn.BatchNorm(use_running_average=not self.train)(x))
        return nn.Dense(1000)(jnp.mean(x, (1, 2)))


@case(name=["resnet18", "mobilenet_v2"], size=[64, 224])
def image_net(lower: Lower, name: str, size: int) -> None:
    make = {"resnet18": ResNet18, "mobilenet_v2": MobileNetV2}[name]
    x = floats(1, size, size, 3)
    variables = weights(lower.shapes(make(False).init, key(), x))
    lower("forward", make(False).apply, variables, x)
    if size > 64:
        return
    params, stats = variables["params"], variables["batch_stats"]
    x, labels = floats(2, size, size, 3), ints(1000, 2)

    def loss(params, stats, x, labels):
        variables = {"params": params, "batch_stats": stats}
        logits, changed = make(True).apply(variables, x, mutable=["batch_stats"])
        return _cross_entropy(logits, labels), changed["batch_stats"]

    def train_step(params, stats, moments, x, labels):
        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(
            params, stats, x, labels
        )
        return *adam(grads, moments, params), stats, value

    if name == "resnet18":
        state = adam_state(params)
        lower("train_step", train_step, params, stats, state, x, labels)
    else:
        grad = jax.grad(loss, has_aux=True)
        lower("grad", grad, params, stats, x, labels)


class ConvNextBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        y = nn.Conv(width, (7, 7), feature_group_count=width)(x)
        y = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(y)))
        y = nn.Dense(width)(y)
        return x + y * self.param("scale", nn.initializers.ones, (width,))


@case(shape=[(14, 384), (56, 96)])
def convnext(lower: Lower, shape) -> None:
    model = nn.Sequential([ConvNextBlock() for _ in range(2)])
    x = floats(1, shape[0], shape[0], shape[1])
    params = weights(lower.shapes(model.init, key(), x))
    lower("forward", model.apply, params, x)
    loss = lambda p, x: jnp.mean(model.apply(p, x) ** 2)
    lower("grad", jax.grad(loss, (0, 1)), params, x)


class EncoderBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y)
        y = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(y)


class Vit(nn.Module):
    width: int
    depth: int
    heads: int

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.width, (16, 16), (16, 16), padding="VALID")(images)
        x = x.reshape(x.shape[0], -1, self.width)
        token = self.param("cls", nn.initializers.zeros, (1, 1, self.width))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("pos", nn.initializers.normal(0.02), x.shape[1:])
        for _ in range(self.depth):
            x = EncoderBlock(self.heads)(x)
        return nn.Dense(1000)(nn.LayerNorm()(x)[:, 0])


@case(size=[(384, 12, 6), (192, 4, 3)])
def vit(lower: Lower, size) -> None:
    model = Vit(*size)
    x, labels = floats(1, 224, 224, 3), ints(1000, 1)
    params = weights(lower.shapes(model.init, key(), x))
    lower("forward", model.apply, params, x)
    if size[1] < 12:
        loss = lambda p, x, y: _cross_entropy(model.apply(p, x), y)
        lower.loss(loss, params, x, labels, only=["train_step"])


class Unet(nn.Module):
    width: int
    levels: int

    @nn.compact
    def __call__(self, x, time):
        phase = time[:, None] * jnp.exp(-jnp.arange(32) / 4.0)
        embedding = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)
        embedding = nn.silu(nn.Dense(4 * self.width)(embedding))

        def block(x, width):
            y = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(8)(x)))
            y = y + nn.Dense(width)(embedding)[:, None, None]
            y = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(8)(y)))
            return y + (x if x.shape == y.shape else nn.Dense(width)(x))

        x = nn.Conv(self.width, (3, 3))(x)
        skips = []
        for level in range(self.levels):
            x = block(x, self.width << level)
            skips.append(x)
            x = nn.Conv(self.width << level, (3, 3), (2, 2))(x)
        x = block(x, self.width << self.levels)
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        flat = flat + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(flat))
        x = flat.reshape(x.shape)
        for level in reversed(range(self.levels)):
            shape = (*skips[-1].shape[:3], x.shape[-1])
            x = nn.Conv(self.width << level, (3, 3))(
                jax.image.resize(x, shape, "nearest")
            )
            x = block(jnp.concatenate([x, skips.pop()], -1), self.width << level)
        return nn.Conv(3, (3, 3))(nn.silu(nn.GroupNorm(8)(x)))


@case(size=[(32, 32, 2), (64, 32, 3)])
def diffusion(lower: Lower, size) -> None:
    pixels, width, levels = size
    model = Unet(width, levels)
    images, time = floats(1, pixels, pixels, 3), floats(1)
    params = weights(lower.shapes(model.init, key(), images, time))
    betas = jnp.linspace(1e-4, 0.02, 1000)

    def loss(params, images, seed):
        first, second = jax.random.split(seed)
        step = jax.random.randint(first, images.shape[:1], 0, 1000)
        kept = jnp.cumprod(1 - betas)[step][:, None, None, None]
        noise = jax.random.normal(second, images.shape)
        noisy = jnp.sqrt(kept) * images + jnp.sqrt(1 - kept) * noise
        return jnp.mean((model.apply(params, noisy, step / 1000.0) - noise) ** 2)

    def sample(params, x):
        """Four steps of DDIM."""

        def step(x, i):
            kept = jnp.cumprod(1 - betas)
            now, later = kept[i], kept[i - 249]
            noise = model.apply(params, x, jnp.full((1,), i / 1000.0))
            clean = (x - jnp.sqrt(1 - now) * noise) / jnp.sqrt(now)
            return jnp.sqrt(later) * clean + jnp.sqrt(1 - later) * noise, ()

        return jax.lax.scan(step, x, jnp.array([999, 750, 500, 250]))[0]

    lower("denoise_step", model.apply, params, images, time)
    if pixels == 32:
        lower.loss(loss, params, images, key(), only=["train_step"])
        lower("sample", sample, params, images)


class Generator(nn.Module):
    width: int

    @nn.compact
    def __call__(self, z):
        x = nn.relu(nn.Dense(16 * 4 * self.width)(z))
        x = x.reshape(-1, 4, 4, 4 * self.width)
        for scale in (4, 2, 1):
            x = nn.ConvTranspose(scale * self.width, (4, 4), (2, 2))(x)
            x = nn.relu(nn.GroupNorm(8)(x))
        return jnp.tanh(nn.ConvTranspose(3, (4, 4), (2, 2))(x))


class Critic(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        for scale in (1, 2, 4):
            x = nn.Conv(scale * self.width, (4, 4), (2, 2))(x)
            x = nn.leaky_relu(x, 0.2)
        return nn.Dense(1)(x.reshape(x.shape[0], -1))


@case(width=[32])
def dcgan(lower: Lower, width: int) -> None:
    generator, critic = Generator(width), Critic(width)
    z, images = floats(4, 64), floats(4, 64, 64, 3)
    made = weights(lower.shapes(generator.init, key(), z))
    judge = weights(lower.shapes(critic.init, key(), images))
    lower("generate", generator.apply, made, z)

    def fooled(made, judge, z):
        scores = critic.apply(judge, generator.apply(made, z))
        return jnp.mean(jax.nn.softplus(-scores))

    def loss(judge, made, z, images):
        real = jnp.mean(jax.nn.softplus(-critic.apply(judge, images)))
        fake = critic.apply(judge, generator.apply(made, z))
        return real + jnp.mean(jax.nn.softplus(fake))

    lower.loss(fooled, made, judge, z, prefix="generator_", only=["train_step"])
    lower.loss(loss, judge, made, z, images, prefix="critic_", only=["train_step"])
