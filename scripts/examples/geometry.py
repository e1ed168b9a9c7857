#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rotations, positions and classes, slow on a CPU under jax.jit.

Products of many points with a small matrix, tables of sines that are broadcast, and
products with one-hot rows. The rules (`dot-forms/unrolled` for many rows and `one_hot`,
`fusion-cuts/spread`) were set on such operations alone and on rotary embeddings; these
programs were written afterwards.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def classes(count: int, *shape: int, seed: int = 0) -> Any:
    """Random numbers of classes."""
    key = jax.random.key(seed)
    return jax.random.randint(key, shape, 0, count, jnp.int32)


def projection() -> Program:
    """300,000 points in the pixels of a camera with a distorting lens."""

    def project(points: Any, rotation: Any, place: Any, camera: Any) -> Any:
        seen = points @ rotation.T + place
        plane = seen[:, :2] / seen[:, 2:]
        far = (plane**2).sum(1, keepdims=True)
        plane = plane * (1 - 0.2 * far + 0.05 * far**2)
        return plane @ camera[:, :2].T + camera[:, 2]

    camera = jnp.array([[800.0, 0, 320], [0, 800, 240]], jnp.float32)
    place = jnp.array([0.0, 0, 20], jnp.float32)
    return project, (normal(300_000, 3), normal(3, 3, seed=1), place, camera)


def registration() -> Program:
    """The gradient of the distance of 200,000 pairs of points after a motion."""

    def loss(motion: Any, source: Any, target: Any, normals: Any) -> Any:
        x, y, z = motion[0], motion[1], motion[2]
        cross = jnp.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], jnp.float32)
        turn = jnp.eye(3, dtype=jnp.float32) + cross * jnp.array([x, y, z])
        moved = source @ turn.T + motion[3:]
        return (((moved - target) * normals).sum(1) ** 2).mean()

    clouds = tuple(normal(200_000, 3, seed=k) for k in range(3))
    return jax.value_and_grad(loss), (0.1 * normal(6), *clouds)


def colours() -> Program:
    """A photo of 1000x1500 to luma and chroma, less saturated, and back."""

    def mute(image: Any, matrix: Any) -> Any:
        luma = image @ matrix.T
        luma = luma * jnp.array([1.0, 0.7, 0.7], jnp.float32)
        return jnp.clip(luma @ jnp.linalg.inv(matrix).T, 0, 1)

    matrix = jnp.array(
        [[0.299, 0.587, 0.114], [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]],
        jnp.float32,
    )
    return mute, (
        jax.random.uniform(jax.random.key(0), (1000, 1500, 3), jnp.float32),
        matrix,
    )


def skin() -> Program:
    """A mesh of 7,000 vertices in 30 poses, moved by 24 bones."""

    def pose(vertices: Any, weights: Any, bones: Any, places: Any) -> Any:
        turns = jnp.einsum("vb,pbij->pvij", weights, bones)
        moved = jnp.einsum("pvij,vj->pvi", turns, vertices)
        return moved + jnp.einsum("vb,pbi->pvi", weights, places)

    weights = jax.nn.softmax(3 * normal(7000, 24, seed=1), axis=1)
    bones = normal(30, 24, 3, 3, seed=2), normal(30, 24, 3, seed=3)
    return pose, (normal(7000, 3), weights, *bones)


def coordinates() -> Program:
    """A training step of a network of two coordinates, 60,000 points."""

    def loss(layers: Any, points: Any, colour: Any) -> Any:
        x = jnp.sin(30 * points @ layers[0])
        x = jnp.sin(x @ layers[1])
        return ((x @ layers[2] - colour) ** 2).mean()

    def step(layers: Any, points: Any, colour: Any) -> Any:
        gradients = jax.grad(loss)(layers, points, colour)
        return [p - 1e-4 * g for p, g in zip(layers, gradients, strict=True)]

    layers = [normal(2, 64), 0.1 * normal(64, 64), normal(64, 3)]
    return step, (layers, normal(60_000, 2), normal(60_000, 3, seed=1))


def rotary() -> Program:
    """Attention with rotary embeddings, 4x8 heads of 256x64, and its gradient."""

    def turned(x: Any) -> Any:
        half = x.shape[-1] // 2
        speed = 1 / 10_000 ** (jnp.arange(half, dtype=jnp.float32) / half)
        angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * speed
        cosine, sine = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)) / 8
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (attend(q, k, v) ** 2).mean()

    arguments = tuple(normal(4, 256, 8, 64, seed=k) for k in range(3))
    return jax.grad(loss, argnums=(0, 1, 2)), arguments


def tomography() -> Program:
    """Projections of 20,000 spots at 120 angles, by their distance to 64 detectors."""

    def project(x: Any, y: Any, mass: Any) -> Any:
        angle = jnp.linspace(0, jnp.pi, 120, endpoint=False, dtype=jnp.float32)
        place = x[:, None] * jnp.cos(angle) + y[:, None] * jnp.sin(angle)
        detector = jnp.clip((place + 4) * 8, 0, 63).astype(jnp.int32)
        image = jnp.zeros((64, 120), jnp.float32)
        return image.at[detector, jnp.arange(120)].add(mass[:, None])

    return project, tuple(normal(20_000, seed=k) for k in range(3))


def waves() -> Program:
    """The sum of 64 plane waves on 300x400 points at one moment."""

    def height(k: Any, phase: Any, amplitude: Any) -> Any:
        y, x = (
            jnp.arange(300.0, dtype=jnp.float32),
            jnp.arange(400.0, dtype=jnp.float32),
        )
        along, across = jnp.outer(k[:, 0], x), jnp.outer(k[:, 1], y) + phase[:, None]
        real = jnp.cos(across)[:, :, None] * jnp.cos(along)[:, None]
        real -= jnp.sin(across)[:, :, None] * jnp.sin(along)[:, None]
        return (amplitude[:, None, None] * real).sum(0)

    return height, (0.1 * normal(64, 2), normal(64), normal(64, seed=1))


def confusion() -> Program:
    """The confusion matrix of 100,000 predictions of 50 classes, and its scores."""

    def scores(logits: Any, labels: Any) -> Any:
        found = jax.nn.one_hot(logits.argmax(1), 50, dtype=jnp.float32)
        matrix = jax.nn.one_hot(labels, 50, dtype=jnp.float32).T @ found
        right = jnp.diagonal(matrix)
        return matrix, right / matrix.sum(0), right / matrix.sum(1)

    return scores, (normal(100_000, 50), classes(50, 100_000))


def clusters() -> Program:
    """Ten steps of k-means, 30,000 points of 16 numbers, 40 centres."""

    def run(points: Any, centres: Any) -> Any:
        def step(_: Any, centres: Any) -> Any:
            far = (centres**2).sum(1) - 2 * points @ centres.T
            own = jax.nn.one_hot(far.argmin(1), 40, dtype=jnp.float32)
            return own.T @ points / jnp.maximum(own.sum(0), 1)[:, None]

        return jax.lax.fori_loop(0, 10, step, centres)

    return run, (normal(30_000, 16), normal(40, 16, seed=1))


def words() -> Program:
    """A training step of a bag of 20 of 5,000 words, one-hot, for 400 texts."""

    def loss(layers: Any, texts: Any, labels: Any) -> Any:
        table, head = layers
        hot = jax.nn.one_hot(texts, 5000, dtype=jnp.float32)
        scores = jax.nn.log_softmax((hot @ table).mean(1) @ head)
        return -(jax.nn.one_hot(labels, 20, dtype=jnp.float32) * scores).sum(1).mean()

    def step(layers: Any, texts: Any, labels: Any) -> Any:
        gradients = jax.grad(loss)(layers, texts, labels)
        return [p - 0.1 * g for p, g in zip(layers, gradients, strict=True)]

    arguments = classes(5000, 400, 20), classes(20, 400, seed=1)
    return step, ([normal(5000, 64), normal(64, 20)], *arguments)


def actions() -> Program:
    """Values of 20,000 steps in a table of 500 states and 18 actions, and an update."""

    def update(table: Any, states: Any, moves: Any, rewards: Any, after: Any) -> Any:
        now = jax.nn.one_hot(states, 500, dtype=jnp.float32)
        then = jax.nn.one_hot(after, 500, dtype=jnp.float32)
        taken = jax.nn.one_hot(moves, 18, dtype=jnp.float32)
        value = ((now @ table) * taken).sum(1)
        error = rewards + 0.99 * (then @ table).max(1) - value
        return table + 0.01 * now.T @ (error[:, None] * taken)

    steps = classes(500, 20_000), classes(18, 20_000, seed=1), normal(20_000)
    return update, (normal(500, 18), *steps, classes(500, 20_000, seed=2))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "projection of points": ("points", projection),
    "registration, gradient": ("points", registration),
    "colours of a photo": ("points", colours),
    "skin of a mesh": ("points", skin),
    "network of coordinates, step": ("points", coordinates),
    "rotary attention, gradient": ("sines", rotary),
    "tomography": ("sines", tomography),
    "plane waves": ("sines", waves),
    "confusion matrix": ("classes", confusion),
    "k-means, ten steps": ("classes", clusters),
    "bag of words, step": ("classes", words),
    "table of actions": ("classes", actions),
}


if __name__ == "__main__":
    compare(PROGRAMS)
