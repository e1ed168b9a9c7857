# SPDX-License-Identifier: Apache-2.0
"""Steps on arrays of thousands of elements, which rules for real sizes ask for.

Moves along an axis (rolls, halos, shifted slices), sums over neighbours, windows,
convolutions, products and cumulative sums, on one family of shapes per module so that
they meet.
"""

from __future__ import annotations

import math

from .builder import MAX_MAGNITUDE, ArrayType, Computation, Value, braces
from .reductions import ReductionSteps

# Multiplications of a convolution or a product, which XLA's evaluator makes one by one.
_MAX_PRODUCTS = 100_000
_MAX_WINDOW = 500_000
# Elements from which updates of a few rows are no scatter of all.
_TABLE = 2**14
_TYPES = ("f32", "f32", "f32", "f32", "s32", "f64", "bf16")


class GridSteps(ReductionSteps):
    """Steps on large arrays, of the dimensions `base`, of some of them, or like them.

    Attributes:
        base: dimensions that most arrays of the module have.
    """

    base: tuple[int, ...] = ()

    def _draw_base(self) -> None:
        rng = self.rng
        rank = rng.choices([1, 2, 3, 4], weights=[2, 6, 3, 2])[0]
        rows = rng.choice([16, 24, 33, 48])
        columns = rng.choice([16, 32, 64, 65, 130])
        self.base = {
            1: (rng.choice([1000, 2048, 3000]),),
            2: (rows, columns),
            3: (rng.choice([2, 3]), rows, min(columns, 64)),
            4: (
                rng.choice([1, 2]),
                min(rows, 24),
                min(columns, 32),
                rng.choice([3, 8]),
            ),
        }[rank]

    def _type(self, dtype: str | None = None) -> ArrayType:
        rng = self.rng
        dims = self.base
        if rng.random() < 0.15:
            dims = tuple(d for d in dims if rng.random() < 0.5)
        return ArrayType(dtype or rng.choice(_TYPES), dims)

    def _bounded(self, c: Computation, value: Value) -> Value:
        """The value, or a fraction of it: the hyperbolic tangent would hide errors."""
        if not value.type.is_float or value.magnitude <= MAX_MAGNITUDE:
            return value
        power = math.ceil(math.log2(value.magnitude))
        part = self._constant(c, value.type, repr(2.0**-power))
        return self._emit(
            c, value.type, "multiply", [value, part], magnitude=1, is_exact=False
        )

    def _array(self, c: Computation, *, is_float: bool = False) -> Value | None:
        return self._pick(
            c,
            lambda v: (
                math.prod(v.type.dims) >= 256
                and (v.type.is_float or (v.type.is_int and not is_float))
            ),
        )

    def _part(
        self, c: Computation, value: Value, axis: int, start: int, limit: int
    ) -> Value:
        """A range along an axis."""
        dims = list(value.type.dims)
        ranges = [f"[0:{d}]" for d in dims]
        ranges[axis] = f"[{start}:{limit}]"
        dims[axis] = limit - start
        return self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "slice",
            [value],
            f"slice={{{', '.join(ranges)}}}",
        )

    def _joined(self, c: Computation, parts: list[Value], axis: int) -> Value:
        dims = list(parts[0].type.dims)
        dims[axis] = sum(each.type.dims[axis] for each in parts)
        return self._emit(
            c,
            parts[0].type.with_dims(tuple(dims)),
            "concatenate",
            parts,
            f"dimensions={{{axis}}}",
        )

    def _rolled(self, c: Computation, value: Value, axis: int, by: int) -> Value:
        size = value.type.dims[axis]
        if not 0 < by < size:
            return value
        first = self._part(c, value, axis, size - by, size)
        second = self._part(c, value, axis, 0, size - by)
        return self._joined(c, [first, second], axis)

    def _axis(self, value: Value) -> int | None:
        axes = [i for i, d in enumerate(value.type.dims) if d >= 8]
        return self.rng.choice(axes) if axes else None

    def _roll(self, c: Computation) -> None:
        """A roll, sometimes along a second axis as well."""
        value = self._array(c)
        for _ in range(self.rng.choice([1, 1, 2])):
            if value is None or (axis := self._axis(value)) is None:
                return
            size = value.type.dims[axis]
            by = self.rng.choice([1, 1, size - 1, 2, size - 2, size // 2])
            value = self._rolled(c, value, axis, by)

    def _halves(self, c: Computation) -> None:
        """A function of the halves of rows, side by side, as rotations have."""
        value = self._array(c, is_float=True)
        if value is None or (size := value.type.dims[-1]) < 2:
            return
        value = self._bounded(c, value)
        axis, half = len(value.type.dims) - 1, size // 2
        parts = [self._part(c, value, axis, at, at + half) for at in (0, half)]
        parts = [
            self._emit(c, each.type, "tanh", [each], magnitude=1, is_exact=False)
            for each in parts
        ]
        self._joined(c, parts, axis)

    def _neighbours(self, c: Computation) -> None:
        """A sum over rolls, or over slices of an array with a border."""
        value = self._array(c)
        if value is None or (axis := self._axis(value)) is None:
            return
        value = self._bounded(c, value)
        rng, size = self.rng, value.type.dims[axis]
        reach = rng.randint(1, 3)
        if rng.random() < 0.5:
            shifts = rng.sample(range(-reach, reach + 1), min(3, 2 * reach + 1))
            parts = [self._rolled(c, value, axis, by % size) for by in shifts]
        else:
            wide = self._bordered(c, value, axis, reach)
            starts = [rng.randint(0, 2 * reach) for _ in range(rng.randint(2, 5))]
            parts = [self._part(c, wide, axis, at, at + size) for at in starts]
        total = parts[0]
        for each in parts[1:]:
            opcode = rng.choice(["add", "add", "subtract", "maximum"])
            total = self._emit(
                c,
                value.type,
                opcode,
                [total, each],
                magnitude=total.magnitude + each.magnitude,
                is_exact=False if value.type.is_float else None,
            )
        self._bounded(c, total)

    def _bordered(self, c: Computation, value: Value, axis: int, reach: int) -> Value:
        """The array with a border along an axis: zeros, or its own elements."""
        size = value.type.dims[axis]
        kind = self.rng.choice(["zeros", "edge", "around", "mirrored"])
        if kind == "zeros":
            zero = self._constant(c, value.type.with_dims(()), "0")
            dims = list(value.type.dims)
            pads = ["0_0"] * len(dims)
            dims[axis] += 2 * reach
            pads[axis] = f"{reach}_{reach}"
            t = value.type.with_dims(tuple(dims))
            return self._emit(c, t, "pad", [value, zero], f"padding={'x'.join(pads)}")
        if kind == "around":
            first = self._part(c, value, axis, size - reach, size)
            last = self._part(c, value, axis, 0, reach)
        elif kind == "edge":
            edges = [(0, 1), (size - 1, size)]
            ends = [self._part(c, value, axis, *each) for each in edges]
            first, last = (self._joined(c, [each] * reach, axis) for each in ends)
        else:
            ranges = [(1, reach + 1), (size - reach - 1, size - 1)]
            first, last = (
                self._emit(c, each.type, "reverse", [each], f"dimensions={{{axis}}}")
                for each in [self._part(c, value, axis, *each) for each in ranges]
            )
        return self._joined(c, [first, value, last], axis)

    def _window(self, c: Computation) -> None:
        """A window that may overlap, be dilated, or leave the array."""
        value = self._array(c)
        if value is None:
            return
        value, rng = self._bounded(c, value), self.rng
        window: dict[str, list[object]] = {
            name: [] for name in ("size", "stride", "pad", "rhs_dilate")
        }
        dims, most = [], 1
        for d in value.type.dims:
            size = rng.choice([1, 1, 2, 3, 5, 9]) if d >= 16 else rng.choice([1, 1, 2])
            dilation = rng.choice([1, 1, 1, 2]) if size > 1 else 1
            reach = (size - 1) * dilation + 1
            size, dilation, reach = (1, 1, 1) if reach > d else (size, dilation, reach)
            stride = rng.choice([1, 1, 2, size])
            low, high = rng.choice([(0, 0), (reach // 2, reach // 2), (reach - 1, 0)])
            dims.append((d + low + high - reach) // stride + 1)
            for name, each in zip(
                window, (size, stride, f"{low}_{high}", dilation), strict=True
            ):
                window[name].append(each)
            most *= size
        if math.prod(dims) * most > _MAX_WINDOW:
            return
        text = " ".join(f"{k}={'x'.join(map(str, v))}" for k, v in window.items())
        attributes = f"window={{{text}}}"
        self._reduced(c, "reduce-window", value, tuple(dims), attributes, most)

    def _cumulative(self, c: Computation) -> None:
        """A cumulative sum or maximum along an axis, from either end."""
        value = self._array(c)
        if value is None or (axis := self._axis(value)) is None:
            return
        value = self._bounded(c, value)
        size, rank = value.type.dims[axis], len(value.type.dims)
        sizes, pads = ["1"] * rank, ["0_0"] * rank
        sizes[axis] = str(size)
        pads[axis] = self.rng.choice([f"{size - 1}_0", f"0_{size - 1}"])
        if math.prod(value.type.dims) * size > _MAX_WINDOW:
            return
        attributes = f"window={{size={'x'.join(sizes)} pad={'x'.join(pads)}}}"
        self._reduced(c, "reduce-window", value, value.type.dims, attributes, size)

    def _grid_convolution(self, c: Computation) -> None:
        """A convolution of one or two dimensions, strided, dilated or in groups."""
        value = self._array(c, is_float=True)
        if value is None or len(value.type.dims) < 2:
            return
        rng, dims = self.rng, value.type.dims
        # The last dimensions become [batch, spatial..., features].
        spatial = dims[-3:-1] if len(dims) > 2 and rng.random() < 0.7 else dims[-2:-1]
        features, batch = dims[-1], math.prod(dims[: len(dims) - 1 - len(spatial)])
        groups = rng.choice([1, 1, features, 2 if features % 2 == 0 else 1])
        kept = features // groups
        out = groups * rng.choice([1, 1, 2, 4])
        shape, sizes, window, taps = [], [], [], 1
        for d in spatial:
            size = rng.choice([1, 3, 3, 5, 2])
            dilation = rng.choice([1, 1, 1, 2]) if size > 1 else 1
            reach = (size - 1) * dilation + 1
            if reach > d:
                return
            low, high = rng.choice([(0, 0), (reach // 2, reach // 2), (reach - 1, 0)])
            base = rng.choice([1, 1, 1, 1, 2])
            stride = rng.choice([1, 1, 2]) if base == 1 else 1
            shape.append(((d - 1) * base + 1 + low + high - reach) // stride + 1)
            sizes.append(size)
            window.append((size, stride, f"{low}_{high}", base, dilation))
            taps *= size
        if batch * math.prod(shape) * out * taps * kept > _MAX_PRODUCTS:
            return
        value = self._bounded(c, value)
        operand = self._emit(
            c, value.type.with_dims((batch, *spatial, features)), "reshape", [value]
        )
        kernel = self._like(
            c, Value("", value.type.with_dims((*sizes, kept, out)), 1.0)
        )
        kernel = self._bounded(c, kernel)
        names = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
        columns = zip(names, zip(*window, strict=True), strict=True)
        text = " ".join(f"{name}={'x'.join(map(str, v))}" for name, v in columns)
        flip = " rhs_reversal=" + "x".join("1" * len(spatial))
        place = "01"[: len(spatial)]
        result = self._emit(
            c,
            value.type.with_dims((batch, *shape, out)),
            "convolution",
            [operand, kernel],
            f"window={{{text}{flip if rng.random() < 0.2 else ''}}}, "
            f"dim_labels=b{place}f_{place}io->b{place}f"
            + (f", feature_group_count={groups}" if groups > 1 else ""),
            magnitude=value.magnitude * kernel.magnitude * taps * kept,
            is_exact=False,
        )
        self._bounded(c, result)

    def _long_filter(self, c: Computation) -> None:
        """Signals of many elements with a filter of some, or the reverse."""
        rng = self.rng
        value = self._pick(
            c, lambda v: v.type.is_float and math.prod(v.type.dims) >= 800
        )
        if value is None:
            return
        signals = rng.choice([1, 1, 2])
        time = min(math.prod(value.type.dims) // signals, 1200)
        short = rng.choice([8, 9, 16, 33, 40])
        size = short if rng.random() < 0.5 else time - short + 1
        if size >= time or signals * size * (time - size + 1) > _MAX_PRODUCTS:
            return
        value = self._bounded(c, value)
        count = math.prod(value.type.dims)
        flat = self._emit(c, value.type.with_dims((count,)), "reshape", [value])
        part = self._part(c, flat, 0, 0, signals * time)
        operand = self._emit(
            c, value.type.with_dims((signals, time, 1)), "reshape", [part]
        )
        taps = self._emit(
            c,
            value.type.with_dims((size, 1, 1)),
            "reshape",
            [self._part(c, flat, 0, count - size, count)],
        )
        result = self._emit(
            c,
            value.type.with_dims((signals, time - size + 1, 1)),
            "convolution",
            [operand, taps],
            f"window={{size={size} rhs_reversal={rng.randint(0, 1)}}}, "
            "dim_labels=b0f_0io->b0f",
            magnitude=value.magnitude**2 * size,
            is_exact=False,
        )
        self._bounded(c, result)

    def _product(self, c: Computation) -> None:
        """A product of two arrays that are there, over an axis of both."""
        left = self._array(c, is_float=True)
        if left is None:
            return
        dtype = left.type.dtype
        right = self._pick(c, lambda v: v.type.dtype == dtype)
        pairs = [
            (i, j)
            for i, d in enumerate(left.type.dims)
            for j, e in enumerate(right.type.dims if right else ())
            if d == e
        ]
        if right is None or not pairs:
            return
        i, j = self.rng.choice(pairs)
        dims = [d for k, d in enumerate(left.type.dims) if k != i]
        dims += [d for k, d in enumerate(right.type.dims) if k != j]
        count = left.type.dims[i]
        if math.prod(dims) * count > _MAX_PRODUCTS or len(dims) > 4:
            return
        left, right = self._bounded(c, left), self._bounded(c, right)
        result = self._emit(
            c,
            left.type.with_dims(tuple(dims)),
            "dot",
            [left, right],
            f"lhs_contracting_dims={{{i}}}, rhs_contracting_dims={{{j}}}",
            magnitude=left.magnitude * right.magnitude * count,
            is_exact=False,
        )
        self._bounded(c, result)

    def _pairs(self, c: Computation) -> None:
        """A reduction of a function of two arrays that are broadcast to each other."""
        left = self._array(c)
        if left is None:
            return
        dtype, rng = left.type.dtype, self.rng
        right = self._pick(c, lambda v: v.type.dtype == dtype)
        shared = set(left.type.dims) & set(right.type.dims if right else ())
        if right is None or not shared:
            return
        size = rng.choice(sorted(shared))
        rest = [list(each.type.dims) for each in (left, right)]
        axes = [dims.index(size) for dims in rest]
        for dims, axis in zip(rest, axes, strict=True):
            dims.pop(axis)
        kept = [*rest[0], *rest[1]]
        if math.prod(kept) * size > _MAX_WINDOW or len(kept) > 4:
            return
        at = rng.randint(0, len(kept))
        wide = left.type.with_dims((*kept[:at], size, *kept[at:]))
        places = [each + (each >= at) for each in range(len(kept))]
        sides = []
        for value, axis in zip((left, right), axes, strict=True):
            own = [places.pop(0) for _ in value.type.dims[1:]]
            own.insert(axis, at)
            order = sorted(range(len(own)), key=own.__getitem__)
            value = self._bounded(c, value)
            if order != list(range(len(own))):
                turned = tuple(value.type.dims[i] for i in order)
                value = self._emit(
                    c,
                    value.type.with_dims(turned),
                    "transpose",
                    [value],
                    f"dimensions={braces(order)}",
                )
            attributes = f"dimensions={braces(sorted(own))}"
            sides.append(self._emit(c, wide, "broadcast", [value], attributes))
        opcode = rng.choice(["add", "subtract", "maximum", "minimum"])
        magnitude = sides[0].magnitude + sides[1].magnitude
        both = self._emit(c, wide, opcode, sides, magnitude=magnitude)
        if rng.random() < 0.5 and dtype != "pred":
            both = self._emit(c, wide, rng.choice(["abs", "negate"]), [both])
        self._reduced(
            c,
            "reduce",
            self._bounded(c, both),
            tuple(kept),
            f"dimensions={{{at}}}",
            size,
        )

    def _table_step(self, c: Computation) -> None:
        """An array and a multiple of rows that are scattered into zeros."""
        found = self._rows(c)
        if found is None or found[0].type.dtype == "pred":
            return
        rng, (value, indices) = self.rng, found
        value = self._bounded(c, value)
        if (size := math.prod(value.type.dims)) < _TABLE and value.type.dims[1] >= 16:
            value = self._joined(c, [value] * math.ceil(_TABLE / size), 0)
        t = value.type
        zero = self._constant(c, t.with_dims(()), "0")
        zeros = self._emit(c, t, "broadcast", [zero], "dimensions={}")
        updates = self._constant(c, t.with_dims((indices.type.dims[0], t.dims[1])))
        step = self._emit(
            c,
            t,
            "scatter",
            [zeros, indices, updates],
            "update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"to_apply={self._reducer(t.dtype, 'add')}",
            magnitude=16,
            is_exact=False if t.is_float else None,
        )
        if rng.random() < 0.5:
            number = self._constant(c, t.with_dims(()), "2")
            factor = self._emit(c, t, "broadcast", [number], "dimensions={}")
            step = self._emit(c, t, "multiply", [step, factor], magnitude=32)
        pair, opcode = [value, step], rng.choice(["add", "subtract"])
        if opcode == "add" and rng.random() < 0.5:
            pair.reverse()
        self._emit(c, t, opcode, pair, magnitude=value.magnitude + step.magnitude)

    def _normalised(self, c: Computation) -> None:
        """An array less its maximum or over its sum along an axis."""
        value = self._array(c, is_float=True)
        if value is None or (axis := self._axis(value)) is None:
            return
        value, rest = self._bounded(c, value), list(value.type.dims)
        size = rest.pop(axis)
        dimensions = f"dimensions={{{axis}}}"
        total = self._reduced(c, "reduce", value, tuple(rest), dimensions, size)
        positions = [i for i in range(len(value.type.dims)) if i != axis]
        wide = self._emit(
            c, value.type, "broadcast", [total], f"dimensions={braces(positions)}"
        )
        self._emit(
            c,
            value.type,
            "subtract",
            [value, wide],
            magnitude=value.magnitude + wide.magnitude,
            is_exact=False,
        )
