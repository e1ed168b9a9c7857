#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times programs of `cases.py` with an operation written in another form in jax.

    python by_hand.py -o by_hand.jsonl [PROGRAM ...]

Needs jax and a GPU. It shows which forms would pay there, before a rule makes them from
the program as it is. All are compiled first, then timed in turns; outputs are compared
with those of the function with precise matrix products.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from cases import PROGRAMS
from jax import lax
from time_modules import error_of, make, time_in_turns

Form = Callable[..., Any]


def online(x: Any, labels: Any) -> Any:
    """Largest number and sum of exponentials of a row in one reduction."""

    def combine(a: Any, b: Any) -> Any:
        most = jnp.maximum(a[0], b[0])

        def scaled(part: Any) -> Any:
            return part[1] * jnp.where(part[0] == most, 1, jnp.exp(part[0] - most))

        return most, scaled(a) + scaled(b)

    start = jnp.float32(-jnp.inf), jnp.float32(0)
    most, total = lax.reduce((x, jnp.ones_like(x)), start, combine, (1,))
    log_sum = most + jnp.log(total)
    loss = (log_sum - x[jnp.arange(x.shape[0]), labels]).mean()
    is_label = labels[:, None] == jnp.arange(x.shape[1])[None]
    return loss, (jnp.exp(x - log_sum[:, None]) - is_label) / x.shape[0]


def argmaxes(x: Any) -> Any:
    """The five largest by five reductions."""
    at = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    values, indices, left = [], [], x
    for _ in range(5):
        indices.append(jnp.argmax(left, 1).astype(jnp.int32))
        chosen = indices[-1][:, None]
        values.append(jnp.take_along_axis(left, chosen, 1)[:, 0])
        left = jnp.where(at == chosen, -jnp.inf, left)
    both = jnp.stack(values, 1), jnp.stack(indices, 1)
    return jnp.argmax(x, 1), both


def blocked(x: Any) -> Any:
    """The five largest of those of 64 parts."""
    rows, width = x.shape
    values, at = lax.top_k(x.reshape(rows, 64, width // 64), 5)
    at = at + (jnp.arange(64, dtype=jnp.int32) * (width // 64))[None, :, None]
    values, chosen = lax.top_k(values.reshape(rows, -1), 5)
    return jnp.argmax(x, 1), (
        values,
        jnp.take_along_axis(at.reshape(rows, -1), chosen, 1),
    )


def components(x: Any) -> Any:
    """Forces by components, without arrays of pairs."""
    apart = [each[:, None] - each[None] for each in x.T]
    square = sum(each * each for each in apart)
    square = square + jnp.eye(x.shape[0], dtype=x.dtype) + 0.1
    s = 1 / (square * square * square)
    slope = (2 * s - 1) * (-3 * s / square) * 2
    forces = [(slope * each).sum(1) * 2 for each in apart]
    return (s * s - s).sum(), jnp.stack(forces, 1)


def lstm(*, unroll: int, is_first: bool) -> Form:
    """Several steps in an iteration; products of the inputs before the loop."""

    def run(x: Any, w: Any, u: Any) -> Any:
        inputs = x @ w if is_first else x

        def step(state: Any, xt: Any) -> Any:
            c, h = state
            gates = (xt if is_first else xt @ w) + h @ u
            i, f, o, g = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (c, jax.nn.sigmoid(o) * jnp.tanh(c)), None

        zeros = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
        return lax.scan(step, (zeros, zeros), inputs, unroll=unroll)[0]

    return run


def nearest(x: Any, centres: Any) -> Any:
    """The index of the nearest centre of each point."""
    return jnp.argmin((centres**2).sum(1) - 2 * x @ centres.T, 1)


def with_ones(x: Any, centres: Any) -> Any:
    """Sums and counts by one scatter."""
    longer = jnp.concatenate([x, jnp.ones((x.shape[0], 1))], 1)
    sums = jax.ops.segment_sum(longer, nearest(x, centres), centres.shape[0])
    return sums[:, :-1] / jnp.maximum(sums[:, -1:], 1)


def one_hot(x: Any, centres: Any) -> Any:
    """Sums and counts by a product."""
    is_near = nearest(x, centres)[:, None] == jnp.arange(centres.shape[0])[None]
    is_near = is_near.astype(x.dtype)
    sums = jnp.einsum("nc,nd->cd", is_near, x, precision="highest")
    return sums / jnp.maximum(is_near.sum(0), 1)[:, None]


def patches(x: Any, kernel: Any) -> Any:
    """A patch embedding as a product."""

    def loss(x: Any, kernel: Any) -> Any:
        size, _, inputs, features = kernel.shape
        count = x.shape[1] // size
        parts = x.reshape(x.shape[0], count, size, count, size, inputs)
        parts = parts.transpose(0, 1, 3, 2, 4, 5).reshape(-1, size * size * inputs)
        result = (parts @ kernel.reshape(-1, features)).astype("float32")
        return result.var()

    return jax.value_and_grad(loss, (0, 1))(x, kernel)


def triangle(x: Any, y: Any) -> Any:
    """Cumulative sums by products with a triangle of ones."""

    def rows(x: Any, block: int = 128) -> Any:
        count = x.shape[1] // block
        ones = jnp.triu(jnp.ones((block, block), x.dtype))
        parts = x.reshape(x.shape[0], count, block)
        inner = jnp.einsum("nbi,ij->nbj", parts, ones, precision="highest")
        before = jnp.triu(jnp.ones((count, count), x.dtype), 1)
        offset = jnp.einsum("nb,bc->nc", inner[..., -1], before, precision="highest")
        return (inner + offset[..., None]).reshape(x.shape)

    parts = rows(jnp.pad(y, (0, -len(y) % 1024)).reshape(-1, 1024))
    offset = jnp.cumsum(parts[:, -1]) - parts[:, -1]
    return rows(x), (parts + offset[:, None]).reshape(-1)[: len(y)]


FORMS: dict[str, dict[str, Form]] = {
    "cross_entropy": {"softmax in one reduction": online},
    "choices": {"five reductions": argmaxes, "largest of parts": blocked},
    "particles": {"components": components},
    "recurrent": {
        "8 steps in one": lstm(unroll=8, is_first=False),
        "input products first": lstm(unroll=1, is_first=True),
        "both": lstm(unroll=8, is_first=True),
    },
    "k_means": {"one scatter": with_ones, "one-hot product": one_hot},
    "patch_embedding": {"product": patches},
    "cumulative": {
        "product with ones": triangle,
        "associative scan": lambda x, y: (
            lax.associative_scan(jnp.add, x, axis=1),
            lax.associative_scan(jnp.add, y),
        ),
    },
}
PLAIN = "jax.jit"


def rows_of(name: str, rounds: int) -> list[dict[str, Any]]:
    """The rows of one program: all its forms, compiled before any is timed."""
    fn, specs = PROGRAMS[name]()
    args = [make(asdict(spec), seed) for seed, spec in enumerate(specs)]
    with jax.default_matmul_precision("highest"):
        wanted = jax.device_get(jax.jit(lambda *xs: fn(*xs))(*args))
    forms = {PLAIN: fn, **FORMS[name]}
    with ThreadPoolExecutor() as pool:
        calls = dict(
            zip(
                forms,
                pool.map(lambda f: jax.jit(f).lower(*args).compile(), forms.values()),
                strict=True,
            )
        )
    errors = {k: error_of(jax.device_get(c(*args)), wanted) for k, c in calls.items()}
    times = time_in_turns(calls, args, rounds=rounds)
    plain = statistics.median(times[PLAIN])
    return [
        {
            "program": name,
            "form": form,
            "median_us": statistics.median(times[form]) * 1e6,
            "speedup": plain / statistics.median(times[form]),
            "relative_error": errors[form],
            "device": str(jax.devices()[0].device_kind),
            "jax": jax.__version__,
        }
        for form in forms
    ]


def main() -> None:
    """Writes a row for each form, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="*", help="default: all that have forms")
    parser.add_argument("-o", "--output", type=Path, default=Path("by_hand.jsonl"))
    parser.add_argument("--rounds", type=int, default=9, help="runs of each form")
    options = parser.parse_args()
    with options.output.open("w") as file:
        for name in options.programs or FORMS:
            for row in rows_of(name, options.rounds):
                file.write(json.dumps(row) + "\n")
                print(
                    f"{name:<18} {row['form']:<26} {row['median_us']:10.1f} us "
                    f"{row['speedup']:7.3f}  error {row['relative_error']:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
