# SPDX-License-Identifier: Apache-2.0
"""Trees of results for all prefixes in random modules, as jax writes them."""

from __future__ import annotations

from .builder import ArrayType, Builder, Computation, Value, braces


class PrefixSteps(Builder):
    """A step as `jax.lax.associative_scan` of a recurrence or of an operation.

    Attributes:
        base: dimensions that most arrays of the module have.
    """

    base: tuple[int, ...]

    def _prefixes(self, c: Computation) -> None:
        """The last array of h[i] = a[i] * h[i - 1] + b[i], or of sums or extremes."""
        rng = self.rng
        given = self._pick(c, lambda v: v.type == ArrayType("f32", self.base))
        axis = rng.randrange(len(self.base))
        if given is None or self.base[axis] < 2:
            return
        # Of both signs, and small, so that their products neither vanish nor overflow.
        term = self._emit(c, given.type, "sine", [given], magnitude=1, is_exact=False)
        arrays = [term]
        if rng.random() < 0.7:
            other = self._emit(
                c, given.type, "cosine", [term], magnitude=1, is_exact=False
            )
            arrays.insert(0, other)
        opcode = rng.choice(["add", "maximum", "minimum", "multiply"])
        (*_, last) = self._scanned(c, arrays, axis, opcode)
        self._emit(c, last.type, "tanh", [last], magnitude=1, is_exact=False)

    def _scanned(
        self, c: Computation, arrays: list[Value], axis: int, opcode: str
    ) -> list[Value]:
        rows = arrays[0].type.dims[axis]
        if rows < 2:
            return arrays
        first = [self._every(c, x, axis, 0, rows - 1, 2) for x in arrays]
        second = [self._every(c, x, axis, 1, rows, 2) for x in arrays]
        odd = self._scanned(c, self._join_rows(c, first, second, opcode), axis, opcode)
        even = [self._every(c, x, axis, 0, 1, 1) for x in arrays]
        if rows > 2:
            before = odd
            if rows % 2 == 0:
                before = [self._every(c, x, axis, 0, rows // 2 - 1, 1) for x in odd]
            after = [self._every(c, x, axis, 2, rows, 2) for x in arrays]
            rest = self._join_rows(c, before, after, opcode)
            even = [
                self._resized(
                    c, "concatenate", [x, y], axis, (rows + 1) // 2, braces([axis])
                )
                for x, y in zip(even, rest, strict=True)
            ]
        return [
            self._interleaved(c, x, y, axis, rows)
            for x, y in zip(even, odd, strict=True)
        ]

    def _join_rows(
        self, c: Computation, first: list[Value], second: list[Value], opcode: str
    ) -> list[Value]:
        type_ = first[0].type
        if len(first) == 1:
            return [self._emit(c, type_, opcode, [first[0], second[0]])]
        product = self._emit(c, type_, "multiply", [second[0], first[1]])
        return [
            self._emit(c, type_, "multiply", [first[0], second[0]]),
            self._emit(c, type_, "add", [product, second[1]]),
        ]

    def _interleaved(
        self, c: Computation, even: Value, odd: Value, axis: int, rows: int
    ) -> Value:
        zero = self._constant(c, ArrayType(even.type.dtype, ()), "0")
        is_odd = rows % 2
        parts = []
        for x, low, high in ((even, 0, 1 - is_odd), (odd, 1, is_odd)):
            padding = ["0_0_0"] * len(self.base)
            padding[axis] = f"{low}_{high}_1"
            dims = (*self.base[:axis], rows, *self.base[axis + 1 :])
            parts.append(
                self._emit(
                    c,
                    x.type.with_dims(dims),
                    "pad",
                    [x, zero],
                    f"padding={'x'.join(padding)}",
                )
            )
        return self._emit(c, parts[0].type, "add", parts)

    def _every(
        self, c: Computation, x: Value, axis: int, start: int, limit: int, stride: int
    ) -> Value:
        cuts = [f"[0:{size}]" for size in x.type.dims]
        cuts[axis] = f"[{start}:{limit}:{stride}]"
        rows = -(-(limit - start) // stride)
        return self._resized(c, "slice", [x], axis, rows, braces(cuts), "slice")

    def _resized(
        self,
        c: Computation,
        opcode: str,
        operands: list[Value],
        axis: int,
        rows: int,
        attribute: str,
        name: str = "dimensions",
    ) -> Value:
        dims = operands[0].type.dims
        type_ = operands[0].type.with_dims((*dims[:axis], rows, *dims[axis + 1 :]))
        return self._emit(c, type_, opcode, operands, f"{name}={attribute}")
