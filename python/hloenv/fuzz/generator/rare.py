# SPDX-License-Identifier: Apache-2.0
"""Steps with opcodes that few modules hold: windows, linear algebra, odd functions."""

from __future__ import annotations

from .builder import ArrayType, Builder, Computation, Value

_F32 = "f32"


class RareSteps(Builder):
    """Each method adds one use of rare opcodes; values stay in [-4, 4]."""

    def _line(self, c: Computation, stem: str, shape: str, text: str) -> str:
        """Adds a line; its name. For what is no array, or no one else may read."""
        name = self._name(stem)
        c.lines.append(f"  {name} = {shape} {text}")
        return name

    def _take(self, c: Computation, *dims: int, dtype: str = _F32) -> Value:
        """A value of a type: one that is there, in [-1, 1], times a ramp."""
        t = ArrayType(dtype, dims)
        found = self._pick(c, lambda v: v.type.dtype == dtype and v.type.dims == ())
        scalar = found or self._constant(c, ArrayType(dtype, ()))
        if dtype not in ("f32", "f64", "f16", "bf16"):
            return self._emit(c, t, "broadcast", [scalar], "dimensions={}")
        scalar = self._emit(c, scalar.type, "sine", [scalar], magnitude=1)
        if not dims:
            return scalar
        axis = self.rng.randrange(len(dims))
        ramp = self._emit(c, t, "iota", [], f"iota_dimension={axis}", magnitude=16)
        wave = self._emit(c, t, "cosine", [ramp], magnitude=1, is_exact=False)
        wide = self._emit(c, t, "broadcast", [scalar], "dimensions={}")
        return self._emit(c, t, "multiply", [wave, wide], magnitude=1, is_exact=False)

    def _end(self, c: Computation, shape: str, text: str, stem: str) -> Value:
        """An f32 array of any size, made harmless."""
        dtype, _, dims = shape.partition("[")
        numbers = tuple(int(d) for d in dims.rstrip("]").split(",") if d)
        t = ArrayType(dtype, numbers)
        raw = Value(self._line(c, stem, str(t), text), t, 1e6, is_exact=False)
        return self._emit(c, t, "tanh", [raw], magnitude=1, is_exact=False)

    def _element(self, c: Computation, name: str, index: int, t: ArrayType) -> Value:
        element = self._line(
            c, "element", str(t), f"get-tuple-element({name}), index={index}"
        )
        value = Value(element, t, 1e6, is_exact=False)
        if t.is_float:
            return self._emit(c, t, "tanh", [value], magnitude=1, is_exact=False)
        c.values.append(value)
        return value

    def _scalar(self, root: str) -> str:
        """A computation of two f32 scalars a and b."""
        name = self._name("scalar")
        self.texts.append(
            f"{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
            f"  ROOT r = {root}\n}}\n"
        )
        return name

    def _functions(self, c: Computation) -> None:
        x = self._take(c, self.rng.randint(1, 6))
        half = self._constant(c, x.type, "0.5")
        x = self._emit(c, x.type, "multiply", [x, half], magnitude=0.5, is_exact=False)
        opcodes = ["acos", "asin", "asinh", "atanh", "cosh", "sinh", "erf", "tan"]
        opcode = self.rng.choice([*opcodes, "acosh"])
        if opcode == "acosh":
            two = self._constant(c, x.type, "2")
            x = self._emit(c, x.type, "add", [x, two], magnitude=3, is_exact=False)
        self._emit(c, x.type, opcode, [x], magnitude=2, is_exact=False)

    def _precision(self, c: Computation) -> None:
        x = self._take(c, 4)
        bits = self.rng.choice([(8, 7), (5, 10), (8, 23), (5, 2)])
        self._emit(
            c,
            x.type,
            "reduce-precision",
            [x],
            f"exponent_bits={bits[0]}, mantissa_bits={bits[1]}",
            is_exact=False,
        )
        self._emit(c, ArrayType("pred", (4,)), "is-finite", [x], magnitude=1)

    def _convolution(self, c: Computation) -> None:
        rng = self.rng
        groups, kind = rng.choice([1, 1, 2, 4]), rng.choice(["feature", "batch"])
        x, size = self._take(c, 4, 6, 4), rng.randint(1, 3)
        features = 4 // groups if kind == "feature" else 4
        k = self._take(c, size, features, 4)
        stride, low = rng.choice([1, 2]), rng.choice([0, 1])
        flip = rng.choice(["", " rhs_reversal=1"])
        width = (6 + 2 * low - size) // stride + 1
        batch = 4 if kind == "feature" else 4 // groups
        self._end(
            c,
            f"f32[{batch},{width},4]",
            f"convolution({x.name}, {k.name}), window={{size={size} stride={stride} "
            f"pad={low}_{low}{flip}}}, dim_labels=b0f_0io->b0f"
            + (f", {kind}_group_count={groups}" if groups > 1 else ""),
            "convolution",
        )

    def _linear_algebra(self, c: Computation) -> None:
        n = self.rng.randint(1, 4)
        a, b = self._take(c, n, n), self._take(c, n, 2)
        eye = self._emit(
            c,
            a.type,
            "dot",
            [a, a],
            "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            magnitude=4,
            is_exact=False,
        )
        rows = self._emit(c, ArrayType("s32", (n, n)), "iota", [], "iota_dimension=0")
        columns = self._emit(
            c, ArrayType("s32", (n, n)), "iota", [], "iota_dimension=1"
        )
        same = self._emit(
            c, ArrayType("pred", (n, n)), "compare", [rows, columns], "direction=EQ"
        )
        large, zero = self._constant(c, a.type, "4"), self._constant(c, a.type, "0")
        diagonal = self._emit(c, a.type, "select", [same, large, zero])
        positive = self._emit(
            c, a.type, "add", [eye, diagonal], magnitude=8, is_exact=False
        )
        lower = self.rng.choice(["true", "false"])
        factor = self._end(
            c, str(a.type), f"cholesky({positive.name}), lower={lower}", "cholesky"
        )
        side = self.rng.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
        system = self.rng.choice([positive, factor])
        self._end(
            c,
            str(b.type),
            f"triangular-solve({system.name}, {b.name}), left_side=true, "
            f"lower={lower}, unit_diagonal={self.rng.choice(['true', 'false'])}, "
            f"transpose_a={side}",
            "solve",
        )

    def _batch_norm(self, c: Computation) -> None:
        x, s = self._take(c, 4, 3), self._take(c, 3)
        triple = f"({x.type}, {s.type}, {s.type})"
        attributes = "epsilon=0.01, feature_index=1"
        norm = self._line(
            c,
            "norm",
            triple,
            f"batch-norm-training({x.name}, {s.name}, {s.name}), {attributes}",
        )
        value = self._element(c, norm, 0, x.type)
        mean = self._element(c, norm, 1, s.type)
        variance = self._emit(c, s.type, "multiply", [mean, mean], is_exact=False)
        operands = f"{x.name}, {s.name}, {s.name}, {mean.name}, {variance.name}"
        self._end(
            c, str(x.type), f"batch-norm-inference({operands}), {attributes}", "norm"
        )
        operands = f"{x.name}, {s.name}, {mean.name}, {variance.name}, {value.name}"
        grad = self._line(
            c, "grad", triple, f"batch-norm-grad({operands}), {attributes}"
        )
        index, t = self.rng.choice([(0, x.type), (1, s.type), (2, s.type)])
        self._element(c, grad, index, t)

    def _fft(self, c: Computation) -> None:
        n = self.rng.choice([2, 4, 5, 8])
        x = self._take(c, 2, n)
        spectrum = self._line(
            c,
            "spectrum",
            f"c64[2,{n // 2 + 1}]",
            f"fft({x.name}), fft_type=RFFT, fft_length={{{n}}}",
        )
        half = f"f32[2,{n // 2 + 1}]"
        self._end(c, half, f"{self.rng.choice(['real', 'imag'])}({spectrum})", "part")
        text = f"fft({spectrum}), fft_type=IRFFT, fft_length={{{n}}}"
        self._end(c, f"f32[2,{n}]", text, "back")

    def _topk(self, c: Computation) -> None:
        n, k = self.rng.randint(2, 8), 2
        t = ArrayType("f32", (n,))
        x = self._emit(c, t, "iota", [], "iota_dimension=0", magnitude=8)
        if self.rng.random() < 0.5:
            x = self._emit(c, t, "negate", [x])
        largest = self.rng.choice(["true", "false"])
        top = self._line(
            c,
            "top",
            f"(f32[{k}], s32[{k}])",
            f"topk({x.name}), k={k}, largest={largest}",
        )
        self._element(c, top, 0, ArrayType("f32", (k,)))
        self._element(c, top, 1, ArrayType("s32", (k,)))

    def _select_and_scatter(self, c: Computation) -> None:
        t = ArrayType("f32", (6,))
        x = self._emit(c, t, "iota", [], "iota_dimension=0", magnitude=8)
        g, zero = self._take(c, 3), self._constant(c, ArrayType("f32", ()), "0")
        select = self._scalar("pred[] compare(a, b), direction=GE")
        add = self._scalar("f32[] add(a, b)")
        self._end(
            c,
            "f32[6]",
            f"select-and-scatter({x.name}, {g.name}, {zero.name}), "
            f"window={{size=2 stride=2}}, select={select}, scatter={add}",
            "back",
        )

    def _dynamic(self, c: Computation) -> None:
        """A bounded size, read back, reduced away."""
        x = self._take(c, 8)
        three = self._constant(c, ArrayType("s32", ()), "3")
        dynamic = self._line(
            c,
            "dynamic",
            "f32[<=8]",
            f"set-dimension-size({x.name}, {three.name}), dimensions={{0}}",
        )
        twice = self._line(c, "twice", "f32[<=8]", f"add({dynamic}, {dynamic})")
        size = self._line(
            c, "size", "s32[]", f"get-dimension-size({twice}), dimensions={{0}}"
        )
        c.values.append(Value(size, ArrayType("s32", ())))
        if self.rng.random() < 0.3:
            length = self._line(c, "length", "s32[]", f"negate({three.name})")
            positive = self._line(c, "length", "s32[]", f"abs({length})")
            twice = self._line(
                c, "again", "f32[<=8]", f"dynamic-reshape({twice}, {positive})"
            )
        zero = self._constant(c, ArrayType("f32", ()), "0")
        add = self._scalar("f32[] add(a, b)")
        text = f"reduce({twice}, {zero.name}), dimensions={{0}}, to_apply={add}"
        self._end(c, "f32[]", text, "total")

    def _fusion(self, c: Computation) -> None:
        """A fusion, sometimes of two outputs; now and then two share a computation."""
        x, y = self._take(c, 4, 2), self._take(c, 4, 2)
        name, t = self._name("fused"), str(x.type)
        is_multiple = self.rng.random() < 0.4
        root = f"  ROOT out = {t} multiply(s, b)\n"
        if is_multiple:
            root = f"  p = {t} multiply(s, b)\n  ROOT out = ({t}, {t}) tuple(s, p)\n"
        self.texts.append(
            f"{name} {{\n  a = {t} parameter(0)\n  b = {t} parameter(1)\n"
            f"  s = {t} add(a, b)\n{root}}}\n"
        )
        operands = f"fusion({x.name}, {y.name}), kind=kLoop, calls={name}"
        if is_multiple:
            pair = self._line(c, "fusion", f"({t}, {t})", operands)
            for index in self.rng.choice([(0,), (1,), (0, 1)]):
                self._element(c, pair, index, x.type)
        else:
            self._end(c, t, operands, "fusion")

    def _barrier(self, c: Computation) -> None:
        x, y = self._take(c, 3), self._take(c, 2)
        types = f"({x.type}, {y.type})"
        pair = self._line(c, "pair", types, f"tuple({x.name}, {y.name})")
        out = self._line(c, "barrier", types, f"opt-barrier({pair})")
        self._element(c, out, 0, x.type)

    def _ragged_dot(self, c: Computation) -> None:
        a, b = self._take(c, 4, 3), self._take(c, 2, 3, 2)
        sizes = self._line(c, "sizes", "s32[2]", "constant({1, 3})")
        self._end(
            c,
            "f32[4,2]",
            f"ragged-dot({a.name}, {b.name}, {sizes}), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
            "ragged",
        )

    def _small_types(self, c: Computation) -> None:
        x = self._take(c, 4)
        dtype = self.rng.choice(
            ["f8e4m3fn", "f8e5m2", "s4", "u4", "s16", "u16", "u64", "f8e4m3b11fnuz"]
        )
        if dtype[0] != "f":
            x = self._emit(c, ArrayType("s32", (4,)), "iota", [], "iota_dimension=0")
        t = ArrayType(dtype, (4,))
        narrow = self._line(c, "narrow", str(t), f"convert({x.name})")
        both = self._line(c, "both", str(t), f"add({narrow}, {narrow})")
        if dtype[0] == "f":
            self._end(c, "f32[4]", f"convert({both})", "wide")
        else:
            wide = self._line(c, "wide", "s32[4]", f"convert({both})")
            c.values.append(Value(wide, ArrayType("s32", (4,)), 100))

    def _complex_functions(self, c: Computation) -> None:
        x, y = self._take(c, 3), self._take(c, 3)
        dtype = self.rng.choice(["c64", "c64", "c128"])
        part = "f64" if dtype == "c128" else "f32"
        names = [
            self._line(c, "wide", f"{part}[3]", f"convert({v.name})") for v in (x, y)
        ]
        z = self._line(c, "z", f"{dtype}[3]", f"complex({', '.join(names)})")
        opcode = self.rng.choice(["exponential", "negate", "tanh", "sine", "cosine"])
        w = self._line(c, "w", f"{dtype}[3]", f"{opcode}({z})")
        v = self._line(c, "v", f"{dtype}[3]", f"multiply({w}, {z})")
        out = self._line(c, "abs", f"{part}[3]", f"abs({v})")
        self._end(c, "f32[3]", f"convert({out})", "back")

    def _bitcast(self, c: Computation) -> None:
        """A transpose as a bitcast, which it is where a dimension is 1."""
        x = self._take(c, 5, 1)
        self._end(c, "f32[1,5]", f"bitcast({x.name})", "bitcast")
