# SPDX-License-Identifier: Apache-2.0
"""Steps that work element by element."""

from __future__ import annotations

import math

from .builder import FLOATS, INTS, SIGNED, ArrayType, Computation, Value, braces
from .reductions import ReductionSteps


class ElementSteps(ReductionSteps):
    """Steps that work element by element."""

    def _unary(self, c: Computation) -> None:
        value = self._pick(c)
        if value is None:
            return
        rng, t = self.rng, value.type
        if t.dtype == "pred":
            self._emit(c, t, "not", [value])
        elif t.is_int:
            opcodes = ["not", "abs", "negate", "popcnt", "count-leading-zeros", "sign"]
            if t.dtype not in SIGNED:
                opcodes = ["not", "popcnt", "count-leading-zeros"]
            self._emit(c, t, rng.choice(opcodes), [value])
        elif t.is_float:
            exact = ["negate", "abs", "copy"]
            jumps = ["floor", "ceil", "sign", "round-nearest-even", "round-nearest-afz"]
            smooth = ["tanh", "sine", "cosine", "logistic", "cbrt"]
            if value.magnitude <= 4:
                smooth += ["exponential", "exponential-minus-one"]
            opcode = rng.choice(exact + smooth * 2 + (jumps if value.is_exact else []))
            if opcode in exact + jumps:
                self._emit(c, t, opcode, [value], magnitude=value.magnitude + 1)
                return
            size = math.exp(value.magnitude) if "exp" in opcode else 1.0
            if opcode == "cbrt":
                size = max(1.0, value.magnitude)
            result = self._emit(c, t, opcode, [value], magnitude=size, is_exact=False)
            if rng.random() < 0.2:
                # Positive and away from 0, for what needs that.
                one = self._constant(c, t, "1")
                positive = self._emit(c, t, "abs", [result])
                above = self._emit(
                    c, t, "add", [positive, one], magnitude=positive.magnitude + 1
                )
                opcode = rng.choice(["log", "sqrt", "rsqrt", "log-plus-one"])
                self._emit(
                    c, t, opcode, [above], magnitude=above.magnitude, is_exact=False
                )

    def _binary(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype != "c64")
        if value is None:
            return
        rng, t = self.rng, value.type
        other = self._like(c, value)
        if t.dtype == "pred":
            self._emit(c, t, rng.choice(["and", "or", "xor"]), [value, other])
        elif t.is_int:
            opcode = rng.choice(
                [
                    "add",
                    "subtract",
                    "multiply",
                    "and",
                    "or",
                    "xor",
                    "maximum",
                    "minimum",
                    "divide",
                    "remainder",
                    "shift-left",
                    "shift-right-logical",
                    "shift-right-arithmetic",
                ]
            )
            if opcode.startswith(("shift", "div", "rem")):
                other = self._constant(c, t, rng.choice(["1", "2", "3", "4"]))
            self._emit(c, t, opcode, [value, other])
        else:
            value, other = self._bounded(c, value), self._bounded(c, other)
            sizes = {
                "add": value.magnitude + other.magnitude,
                "subtract": value.magnitude + other.magnitude,
                "multiply": max(1.0, value.magnitude) * max(1.0, other.magnitude),
                "maximum": max(value.magnitude, other.magnitude),
                "minimum": max(value.magnitude, other.magnitude),
                "divide": value.magnitude * 4,
                "power": value.magnitude**2,
                "atan2": 4.0,
            }
            opcode = rng.choice([*sizes, "add", "multiply", "subtract", "multiply"])
            is_exact = None if opcode in ("maximum", "minimum") else False
            if opcode == "divide":
                other = self._constant(c, t, rng.choice(["1", "2", "4", "0.25", "3"]))
            if opcode == "power":
                other = self._constant(c, t, rng.choice(["1", "2", "2"]))
            if opcode == "atan2":
                one = self._constant(c, t, "1")
                size = self._emit(c, t, "abs", [other])
                other = self._emit(
                    c, t, "add", [size, one], magnitude=size.magnitude + 1
                )
            operands = [value, other]
            if opcode in ("add", "multiply") and rng.random() < 0.5:
                operands.reverse()
            self._emit(
                c, t, opcode, operands, magnitude=sizes[opcode], is_exact=is_exact
            )

    def _identity(self, c: Computation) -> None:
        """What algebraic simplification takes away again."""
        value = self._pick(c, lambda v: v.type.is_float or v.type.is_int)
        if value is None:
            return
        rng, t = self.rng, value.type
        kind = rng.randrange(8)
        if kind < 3:
            opcode, literal = [("add", "0"), ("multiply", "1"), ("divide", "1")][kind]
            constant = self._constant(c, t, literal)
            operands = [value, constant]
            if kind < 2 and rng.random() < 0.5:
                operands.reverse()
            self._emit(c, t, opcode, operands, magnitude=value.magnitude)
        elif kind == 3 and (t.is_float or t.dtype in SIGNED):
            self._emit(c, t, "negate", [self._emit(c, t, "negate", [value])])
        elif kind == 4:
            flat = self._emit(c, t.with_dims((math.prod(t.dims),)), "reshape", [value])
            self._emit(c, t, "reshape", [flat])
        elif kind == 5 and len(t.dims) > 1:
            order = rng.sample(range(len(t.dims)), len(t.dims))
            back = [order.index(i) for i in range(len(order))]
            moved = self._emit(
                c,
                t.with_dims(tuple(t.dims[i] for i in order)),
                "transpose",
                [value],
                f"dimensions={braces(order)}",
            )
            self._emit(c, t, "transpose", [moved], f"dimensions={braces(back)}")
        elif kind == 6:
            pair = self._name("tuple")
            other = self._like(c, value)
            c.lines.append(f"  {pair} = ({t}, {t}) tuple({value.name}, {other.name})")
            chosen, index = rng.choice([(value, 0), (other, 1)])
            name = self._name("element")
            c.lines.append(f"  {name} = {t} get-tuple-element({pair}), index={index}")
            c.values.append(Value(name, t, chosen.magnitude, chosen.is_exact))
        else:
            zero = self._constant(c, t, "0")
            if t.is_int:
                self._emit(c, t, "multiply", [value, zero])
            else:
                self._emit(c, t, "subtract", [value, zero])

    def _repeat(self, c: Computation) -> None:
        """The same instruction once more, under another name."""
        candidates = [
            (line, value)
            for value in c.values
            for line in [self._line_of(c, value)]
            if " parameter(" not in line
        ]
        if not candidates:
            return
        line, value = self.rng.choice(candidates)
        name = self._name("again")
        c.lines.append(f"  {name} ={line.split('=', 1)[1]}")
        c.values.append(Value(name, value.type, value.magnitude, value.is_exact))

    @staticmethod
    def _line_of(c: Computation, value: Value) -> str:
        return next(line for line in c.lines if line.startswith(f"  {value.name} ="))

    def _convert(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype != "c64")
        if value is None:
            return
        rng, t = self.rng, value.type
        if t.dtype in ("s32", "u32") and rng.random() < 0.2:
            other = "u32" if t.dtype == "s32" else "s32"
            self._emit(c, ArrayType(other, t.dims), "bitcast-convert", [value])
            return
        if t.is_float:
            # To an integer type only what is in range of it, and exact.
            small = value.is_exact and value.magnitude <= 100
            target = rng.choice([*FLOATS, *(SIGNED if small else ())])
        elif t.dtype == "pred":
            target = rng.choice([*FLOATS, *INTS])
        else:
            # Integers may be large: into floats only by way of a small one.
            three = self._constant(c, t, "3")
            value = self._emit(c, t, "and", [value, three], magnitude=3)
            target = rng.choice([*FLOATS, *INTS])
        is_exact = value.is_exact and (t.is_int or t.dtype == "pred")
        self._emit(
            c,
            ArrayType(target, t.dims),
            "convert",
            [value],
            magnitude=max(3.0, value.magnitude),
            is_exact=is_exact or target not in FLOATS,
        )

    def _compare_select(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.is_exact and v.type.dtype != "c64")
        if value is None:
            return
        other = self._pick(c, lambda v: v.type == value.type and v.is_exact)
        assert other is not None
        if self.rng.random() < 0.4:
            other = self._constant(c, value.type)
        direction = self.rng.choice(["EQ", "NE", "LT", "LE", "GT", "GE"])
        mask = self._emit(
            c,
            ArrayType("pred", value.type.dims),
            "compare",
            [value, other],
            f"direction={direction}",
            magnitude=1,
        )
        chosen = self._pick(
            c, lambda v: v.type.dims == value.type.dims and v.type.dtype != "c64"
        )
        if chosen is None or self.rng.random() < 0.2:
            return
        if self.rng.random() < 0.4:
            mask = self._emit(c, mask.type, "not", [mask])
        self._emit(c, chosen.type, "select", [mask, chosen, self._like(c, chosen)])

    def _clamp(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.is_float)
        if value is None:
            return
        # Broadcast: the evaluator knows no clamp of an array by scalars.
        low = self._constant(c, value.type, "-1")
        high = self._constant(c, value.type, "2")
        self._emit(c, value.type, "clamp", [low, value, high])

    def _iota(self, c: Computation) -> None:
        t = self._type(self.rng.choice(["s32", "s32", "f32", "u8"]))
        if not t.dims:
            return
        axis = self.rng.randrange(len(t.dims))
        self._emit(c, t, "iota", [], f"iota_dimension={axis}", magnitude=16)

    def _map(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.is_float)
        if value is None:
            return
        value = self._bounded(c, value)
        other = self._bounded(c, self._like(c, value))
        self._emit(
            c,
            value.type,
            "map",
            [value, other],
            f"dimensions={braces(range(len(value.type.dims)))}, "
            f"to_apply={self._reducer(value.type.dtype, 'multiply')}",
            magnitude=value.magnitude * other.magnitude,
            is_exact=False,
        )

    def _tuple(self, c: Computation) -> None:
        """A nested tuple and one of its leaves; the rest is dead."""
        a, b = self._pick(c), self._pick(c)
        if a is None or b is None:
            return
        inner, outer, part, leaf = (
            self._name(s) for s in ("inner", "outer", "part", "leaf")
        )
        inner_type = f"({a.type}, {b.type})"
        c.lines += [
            f"  {inner} = {inner_type} tuple({a.name}, {b.name})",
            f"  {outer} = ({b.type}, {inner_type}) tuple({b.name}, {inner})",
            f"  {part} = {inner_type} get-tuple-element({outer}), index=1",
            f"  {leaf} = {a.type} get-tuple-element({part}), index=0",
        ]
        c.values.append(Value(leaf, a.type, a.magnitude, a.is_exact))

    def _complex(self, c: Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype == "f32")
        if value is None:
            return
        value = self._bounded(c, value)
        other = self._bounded(c, self._like(c, value))
        t = ArrayType("c64", value.type.dims)
        size = value.magnitude + other.magnitude
        z = self._emit(c, t, "complex", [value, other], magnitude=size)
        product = self._emit(
            c, t, "multiply", [z, z], magnitude=size**2, is_exact=False
        )
        part = self.rng.choice(["real", "imag"])
        result = self._emit(
            c, value.type, part, [self.rng.choice([z, product])], magnitude=size**2
        )
        self._bounded(c, result)
