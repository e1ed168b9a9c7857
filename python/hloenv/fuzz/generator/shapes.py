# SPDX-License-Identifier: Apache-2.0
"""Steps that move elements about."""

from __future__ import annotations

import math

from .builder import Builder, Computation, braces


class ShapeSteps(Builder):
    """Steps that move elements about."""

    def _reshape(self, c: Computation) -> None:
        value = self._pick(c)
        if value is None:
            return
        total = math.prod(value.type.dims)
        dims: list[int] = []
        rest = total
        while rest > 1 and len(dims) < 4:
            factor = self.rng.choice([f for f in range(2, rest + 1) if rest % f == 0])
            dims.append(factor)
            rest //= factor
        if rest != 1:
            dims.append(rest)
        if len(dims) < 5 and self.rng.random() < 0.5:
            dims.insert(self.rng.randint(0, len(dims)), 1)
        self._emit(c, value.type.with_dims(tuple(dims)), "reshape", [value])

    def _transpose(self, c: Computation) -> None:
        value = self._pick(c, lambda v: len(v.type.dims) > 1)
        if value is None:
            return
        order = self.rng.sample(range(len(value.type.dims)), len(value.type.dims))
        dims = tuple(value.type.dims[i] for i in order)
        self._emit(
            c,
            value.type.with_dims(dims),
            "transpose",
            [value],
            f"dimensions={braces(order)}",
        )

    def _broadcast(self, c: Computation) -> None:
        value = self._pick(c, lambda v: len(v.type.dims) < 4)
        if value is None:
            return
        dims = list(value.type.dims)
        positions = list(range(len(dims)))
        for _ in range(self.rng.randint(1, 5 - len(dims))):
            at = self.rng.randint(0, len(dims))
            dims.insert(at, self.rng.randint(1, 4))
            positions = [p + (p >= at) for p in positions]
        if math.prod(dims) > self.max_elements:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "broadcast",
            [value],
            f"dimensions={braces(positions)}",
        )

    def _slice(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != ())
        if value is None:
            return
        parts, dims = [], []
        for size in value.type.dims:
            start = self.rng.randint(0, max(0, size - 1)) if size else 0
            limit = self.rng.randint(min(start + 1, size), size)
            if self.rng.random() < 0.5:
                start, limit = 0, size
            stride = self.rng.choice([1, 1, 2])
            parts.append(f"[{start}:{limit}:{stride}]")
            dims.append(-(-(limit - start) // stride))
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "slice",
            [value],
            f"slice={{{', '.join(parts)}}}",
        )

    def _concatenate(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != ())
        if value is None or value.type.dtype == "c64":
            return
        axis = self.rng.randrange(len(value.type.dims))
        values = [value]
        values += [self._like(c, value) for _ in range(self.rng.randint(0, 2))]
        dims = list(value.type.dims)
        dims[axis] *= len(values)
        if math.prod(dims) > self.max_elements:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "concatenate",
            values,
            f"dimensions={{{axis}}}",
        )

    def _pad(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != () and v.type.dtype != "c64")
        if value is None:
            return
        zero = self._constant(c, value.type.with_dims(()))
        dims, parts = [], []
        for size in value.type.dims:
            low = self.rng.choice([0, 0, 1, 2, -1])
            high = self.rng.choice([0, 0, 1])
            interior = self.rng.choice([0, 0, 0, 1])
            padded = size + low + high + interior * max(0, size - 1)
            if padded < 0:
                low, high, interior, padded = 0, 0, 0, size
            dims.append(padded)
            parts.append(f"{low}_{high}_{interior}")
        if math.prod(dims) > self.max_elements:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "pad",
            [value, zero],
            f"padding={'x'.join(parts)}",
        )

    def _reverse(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != ())
        if value is None:
            return
        rank = len(value.type.dims)
        axes = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        self._emit(c, value.type, "reverse", [value], f"dimensions={braces(axes)}")
