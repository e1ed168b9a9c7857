# SPDX-License-Identifier: Apache-2.0
"""Steps that reduce, contract, index and sort."""

from __future__ import annotations

import math

from .builder import (
    FLOATS,
    ArrayType,
    Builder,
    Computation,
    Value,
    braces,
)


class ReductionSteps(Builder):
    """Steps that reduce, contract, index and sort."""

    def _reducer(self, dtype: str, opcode: str) -> str:
        """A computation of two scalars; sometimes shared, sometimes its own."""
        key = f"{opcode} {dtype}"
        if key in self.shared and self.rng.random() < 0.7:
            return self.shared[key]
        name = self._name(f"{opcode}_{dtype}")
        self.texts.append(
            f"{name} {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
            f"  ROOT r = {dtype}[] {opcode}(a, b)\n}}\n"
        )
        self.shared[key] = name
        return name

    def _reduction(self, c: Computation, dtype: str) -> tuple[str, Value]:
        if dtype == "pred":
            opcode, start = self.rng.choice([("and", "true"), ("or", "false")])
        elif dtype in FLOATS:
            opcode, start = self.rng.choice(
                [("add", "0"), ("maximum", "-inf"), ("minimum", "inf"), ("add", "0")]
            )
        else:
            opcode, start = self.rng.choice(
                [("add", "0"), ("maximum", "0"), ("multiply", "1"), ("or", "0")]
            )
        init = self._constant(c, ArrayType(dtype, ()), start)
        if "inf" in start:
            # Nothing else may use it: arithmetic on it gives NaN.
            c.values.remove(init)
        return opcode, init

    def _reduced(
        self,
        c: Computation,
        opcode: str,
        value: Value,
        dims: tuple[int, ...],
        attributes: str,
        count: int,
    ) -> Value:
        """A reduction of some kind to `dims`, of `count` elements each."""
        operation, init = self._reduction(c, value.type.dtype)
        is_sum = operation == "add"
        result = self._emit(
            c,
            value.type.with_dims(dims),
            opcode,
            [value, init],
            f"{attributes}, to_apply={self._reducer(value.type.dtype, operation)}",
            magnitude=value.magnitude * (count if is_sum else 1),
            is_exact=value.is_exact and not is_sum,
        )
        return self._bounded(c, result)

    def _reduce(self, c: Computation) -> None:
        value = self._pick(
            c, lambda v: 0 not in v.type.dims != () and v.type.dtype != "c64"
        )
        if value is None:
            return
        value = self._bounded(c, value)
        rank = len(value.type.dims)
        axes = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        kept = tuple(d for i, d in enumerate(value.type.dims) if i not in axes)
        count = math.prod(value.type.dims) // max(1, math.prod(kept))
        self._reduced(c, "reduce", value, kept, f"dimensions={braces(axes)}", count)

    def _reduce_window(self, c: Computation) -> None:
        value = self._pick(
            c, lambda v: 0 not in v.type.dims != () and v.type.dtype != "c64"
        )
        if value is None:
            return
        value = self._bounded(c, value)
        sizes, strides, pads, dims = [], [], [], []
        for d in value.type.dims:
            size = self.rng.randint(1, min(3, d))
            stride = self.rng.choice([1, 1, 2])
            low = self.rng.choice([0, 0, 1]) if size > 1 else 0
            sizes.append(size)
            strides.append(stride)
            pads.append(f"{low}_0")
            dims.append((d + low - size) // stride + 1)
        window = (
            f"window={{size={'x'.join(map(str, sizes))} "
            f"stride={'x'.join(map(str, strides))} pad={'x'.join(pads)}}}"
        )
        count = math.prod(sizes)
        self._reduced(c, "reduce-window", value, tuple(dims), window, count)

    def _dot(self, c: Computation) -> None:
        left = self._pick(c, lambda v: v.type.is_float and 0 < len(v.type.dims) < 4)
        if left is None:
            return
        left = self._bounded(c, left)
        rank = len(left.type.dims)
        num_batch = self.rng.choice([0, 0, 1]) if rank > 1 else 0
        axes = self.rng.sample(range(rank), rank)
        batch = axes[:num_batch]
        contracting = axes[num_batch : num_batch + self.rng.choice([0, 1, 1, 2])]
        free = self.rng.randint(1, 3)
        kept = [left.type.dims[i] for i in range(rank) if i not in batch + contracting]
        right_dims = [left.type.dims[i] for i in batch + contracting]
        right_dims.append(free)
        out = [left.type.dims[i] for i in batch] + kept + [free]
        if math.prod(out) > self.max_elements or len(out) > 5:
            return
        right = self._like(c, Value("", left.type.with_dims(tuple(right_dims)), 1.0))
        right = self._bounded(c, right)
        count = math.prod(left.type.dims[i] for i in contracting)
        attributes = [
            f"lhs_batch_dims={braces(batch)}" if batch else "",
            f"rhs_batch_dims={braces(range(num_batch))}" if batch else "",
            f"lhs_contracting_dims={braces(contracting)}",
            "rhs_contracting_dims="
            + braces(range(num_batch, num_batch + len(contracting))),
        ]
        result = self._emit(
            c,
            left.type.with_dims(tuple(out)),
            "dot",
            [left, right],
            ", ".join(a for a in attributes if a),
            magnitude=max(1, count) * left.magnitude * right.magnitude,
            is_exact=False,
        )
        self._bounded(c, result)

    def _index(self, c: Computation) -> Value:
        """A scalar s32, sometimes out of range on purpose: slices clamp it."""
        found = self._pick(c, lambda v: v.type == ArrayType("s32", ()))
        if found is not None and self.rng.random() < 0.5:
            return found
        return self._constant(c, ArrayType("s32", ()), self.rng.choice(["0", "1", "9"]))

    def _dynamic_slice(self, c: Computation) -> None:
        value = self._pick(c, lambda v: 0 not in v.type.dims != ())
        if value is None:
            return
        sizes = tuple(self.rng.randint(1, d) for d in value.type.dims)
        indices = [self._index(c) for _ in sizes]
        part = self._emit(
            c,
            value.type.with_dims(sizes),
            "dynamic-slice",
            [value, *indices],
            f"dynamic_slice_sizes={braces(sizes)}",
            magnitude=value.magnitude,
            is_exact=value.is_exact,
        )
        if self.rng.random() < 0.5:
            # XLA may read a part of the array where it has been updated.
            part = self._emit(
                *(c, part.type, "opt-barrier", [part]),
                magnitude=part.magnitude,
                is_exact=part.is_exact,
            )
            self._emit(
                c,
                value.type,
                "dynamic-update-slice",
                [value, part, *[self._index(c) for _ in sizes]],
                magnitude=value.magnitude,
                is_exact=value.is_exact,
            )

    def _rows(self, c: Computation) -> tuple[Value, Value] | None:
        """A matrix, and indices of some of its rows."""
        value = self._pick(c, lambda v: len(v.type.dims) == 2 and 0 not in v.type.dims)
        if value is None or value.type.dtype == "c64":
            return None
        t = ArrayType("s32", (self.rng.randint(1, 4), 1))
        iota = self._emit(c, t, "iota", [], "iota_dimension=0", magnitude=4)
        limit = self._constant(c, t, str(value.type.dims[0] - 1))
        return value, self._emit(c, t, "minimum", [iota, limit])

    def _gather(self, c: Computation) -> None:
        found = self._rows(c)
        if found is None:
            return
        value, indices = found
        columns = value.type.dims[1]
        self._emit(
            c,
            value.type.with_dims((indices.type.dims[0], columns)),
            "gather",
            [value, indices],
            "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            f"index_vector_dim=1, slice_sizes={{1,{columns}}}",
            magnitude=value.magnitude,
            is_exact=value.is_exact,
        )

    def _scatter(self, c: Computation) -> None:
        found = self._rows(c)
        if found is None:
            return
        value, indices = found
        if value.type.dtype == "pred":
            return
        value = self._bounded(c, value)
        updates = self._constant(
            c, value.type.with_dims((indices.type.dims[0], value.type.dims[1]))
        )
        self._emit(
            c,
            value.type,
            "scatter",
            [value, indices, updates],
            "update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"to_apply={self._reducer(value.type.dtype, 'add')}",
            magnitude=value.magnitude + 16,
            is_exact=False if value.type.is_float else None,
        )

    def _sort(self, c: Computation) -> None:
        value = self._pick(
            c, lambda v: v.is_exact and v.type.dims != () and v.type.dtype != "pred"
        )
        if value is None or value.type.dtype == "c64":
            return
        axis = self.rng.randrange(len(value.type.dims))
        dtype, t = value.type.dtype, value.type
        name = self._name("less")
        if self.rng.random() < 0.5:
            self.texts.append(
                f"{name} {{\n  a = {dtype}[] parameter(0)\n"
                f"  b = {dtype}[] parameter(1)\n"
                "  ROOT r = pred[] compare(a, b), direction=LT\n}\n"
            )
            self._emit(c, t, "sort", [value], f"dimensions={{{axis}}}, to_apply={name}")
            return
        self.texts.append(
            f"{name} {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
            "  i = s32[] parameter(2)\n  j = s32[] parameter(3)\n"
            "  ROOT r = pred[] compare(a, b), direction=GT\n}\n"
        )
        places = self._emit(
            c,
            ArrayType("s32", t.dims),
            "iota",
            [],
            f"iota_dimension={axis}",
            magnitude=16,
        )
        pair = self._name("sort")
        c.lines.append(
            f"  {pair} = ({t}, {places.type}) sort({value.name}, {places.name}), "
            f"dimensions={{{axis}}}, is_stable=true, to_apply={name}"
        )
        for index, source in enumerate((value, places)):
            element = self._name("sorted")
            c.lines.append(
                f"  {element} = {source.type} get-tuple-element({pair}), index={index}"
            )
            c.values.append(Value(element, source.type, source.magnitude))
