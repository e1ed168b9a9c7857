# SPDX-License-Identifier: Apache-2.0
"""Seeded random modules that parse, verify, and that XLA's evaluator can run.

The same seed gives the same text in every process. Values are built so that
rewriting changes them by rounding alone: magnitudes stay small, so that nothing
overflows, and what jumps (floor, compare, conversion to integers) is applied only
to values that no rounding has touched.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

_FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
_INTS = ("s32", "s32", "u32", "s64", "s8", "u8")
_MAX_ELEMENTS = 256
_MAX_MAGNITUDE = 50.0
_SIGNED = ("s8", "s32", "s64")


@dataclass(frozen=True)
class _Type:
    dtype: str
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOATS

    @property
    def is_int(self) -> bool:
        return self.dtype in _INTS

    def with_dims(self, dims: tuple[int, ...]) -> _Type:
        return _Type(self.dtype, dims)


@dataclass(frozen=True)
class _Value:
    """An array in a computation.

    `magnitude` bounds floats; `is_exact` says that no rounding has touched it.
    """

    name: str
    type: _Type
    magnitude: float = 1.0
    is_exact: bool = True


@dataclass
class _Computation:
    name: str
    lines: list[str] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)


def random_module(seed: int, size: int = 40) -> str:
    """HLO text of a module.

    Args:
        seed: which module.
        size: about how many steps build the entry; the instruction count is a few
            times that.
    """
    return _Generator(random.Random(f"hloenv module {seed}"), size).module(seed)


def _braces(values: object) -> str:
    return "{" + ",".join(map(str, values)) + "}"  # type: ignore[call-overload]


class _Generator:
    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng = rng
        self.size = size
        self.next_name = 0
        self.texts: list[str] = []  # of finished computations
        self.shared: dict[str, str] = {}  # helpers by what they do
        self.depth = 0

    # --- text -----------------------------------------------------------------

    def module(self, seed: int) -> str:
        entry = _Computation("main")
        for number in range(self.rng.randint(1, 4)):
            self._parameter(entry, number, self._type())
        self._grow(entry, self.size)
        if self.rng.random() < 0.3:
            self._dead_computation()
        root = self._root(entry)
        body = "\n".join([*entry.lines, root])
        helpers = "\n".join(self.texts)
        return (
            f"HloModule random_{seed}\n\n{helpers}\nENTRY {entry.name} {{\n{body}\n}}\n"
        )

    def _name(self, stem: str) -> str:
        self.next_name += 1
        return f"{stem.replace('-', '_')}.{self.next_name}"

    def _emit(
        self,
        c: _Computation,
        type_: _Type,
        opcode: str,
        operands: list[_Value],
        attributes: str = "",
        *,
        magnitude: float | None = None,
        is_exact: bool | None = None,
    ) -> _Value:
        """Adds an instruction; by default a value as large and exact as its operands."""
        name = self._name(opcode)
        names = ", ".join(operand.name for operand in operands)
        suffix = f", {attributes}" if attributes else ""
        c.lines.append(f"  {name} = {type_} {opcode}({names}){suffix}")
        if magnitude is None:
            magnitude = max((o.magnitude for o in operands), default=1.0)
        if is_exact is None:
            is_exact = all(operand.is_exact for operand in operands)
        value = _Value(name, type_, magnitude, is_exact)
        c.values.append(value)
        return value

    def _parameter(self, c: _Computation, number: int, type_: _Type) -> _Value:
        name = self._name("p")
        c.lines.append(f"  {name} = {type_} parameter({number})")
        value = _Value(name, type_, 4.0)
        c.values.append(value)
        return value

    def _finish(self, c: _Computation, root: str) -> str:
        body = "\n".join([*c.lines, root])
        self.texts.append(f"{c.name} {{\n{body}\n}}\n")
        return c.name

    def _root(self, c: _Computation) -> str:
        """A tuple of a few values, late ones above all, with repeats and nesting."""
        late = c.values[-8:]
        chosen = self.rng.sample(late, min(len(late), self.rng.randint(1, 4)))
        if self.rng.random() < 0.3:
            chosen.append(self.rng.choice(c.values))
        if self.rng.random() < 0.2:
            chosen.append(chosen[0])
        if len(chosen) == 1 and self.rng.random() < 0.5:
            value = chosen[0]
            name = self._name("root")
            return f"  ROOT {name} = {value.type} copy({value.name})"
        types = [str(value.type) for value in chosen]
        names = [value.name for value in chosen]
        if self.rng.random() < 0.25:
            inner = self._name("inner")
            c.lines.append(f"  {inner} = ({types[0]}) tuple({names[0]})")
            types[0], names[0] = f"({types[0]})", inner
        return f"  ROOT {self._name('root')} = ({', '.join(types)}) tuple({', '.join(names)})"

    # --- types, constants, choices --------------------------------------------

    def _type(self, dtype: str | None = None) -> _Type:
        rng = self.rng
        if dtype is None:
            dtype = rng.choice(_FLOATS if rng.random() < 0.7 else _INTS)
        rank = rng.choices(range(6), weights=[2, 5, 5, 3, 1, 1])[0]
        while True:
            largest = {0: 1, 1: 16, 2: 8, 3: 4}.get(rank, 3)
            dims = tuple(rng.randint(1, largest) for _ in range(rank))
            if rank and rng.random() < 0.02:
                dims = (0, *dims[1:])
            if math.prod(dims) <= _MAX_ELEMENTS:
                return _Type(dtype, dims)

    def _literal(self, dtype: str) -> str:
        rng = self.rng
        if dtype == "pred":
            return rng.choice(["true", "false"])
        if dtype in _FLOATS:
            return rng.choice(["0", "1", "2", "-1", "0.5", "0.25", "-3", "4"])
        return rng.choice(["0", "1", "2", "3", "5"] + ["-1"] * (dtype in _SIGNED))

    def _constant(
        self, c: _Computation, type_: _Type, literal: str | None = None
    ) -> _Value:
        """A broadcast scalar constant of `type_`, or a plain one."""
        text = literal or self._literal(type_.dtype)
        name = self._name("constant")
        c.lines.append(f"  {name} = {type_.dtype}[] constant({text})")
        scalar = _Value(name, _Type(type_.dtype, ()), 4.0)
        c.values.append(scalar)
        if not type_.dims:
            return scalar
        return self._emit(c, type_, "broadcast", [scalar], "dimensions={}")

    def _pick(
        self, c: _Computation, test: Callable[[_Value], bool] | None = None
    ) -> _Value | None:
        values = [v for v in c.values if test is None or test(v)]
        if not values:
            return None
        # Late values more often, so that chains grow.
        return values[int(len(values) * math.sqrt(self.rng.random()))]

    def _like(self, c: _Computation, value: _Value) -> _Value:
        """Another value of the same type, made from one of any shape if need be."""
        other = self._pick(c, lambda v: v.type == value.type)
        if other is not None and (other is not value or self.rng.random() < 0.3):
            return other
        if self.rng.random() < 0.5:
            scalar = self._pick(
                c, lambda v: v.type == _Type(value.type.dtype, ()) and not v.type.dims
            )
            if scalar is not None and value.type.dims:
                return self._emit(c, value.type, "broadcast", [scalar], "dimensions={}")
        return self._constant(c, value.type)

    def _bounded(self, c: _Computation, value: _Value) -> _Value:
        """The value, or its tanh where it could be large."""
        if not value.type.is_float or value.magnitude <= _MAX_MAGNITUDE:
            return value
        return self._emit(c, value.type, "tanh", [value], magnitude=1, is_exact=False)

    # --- steps ----------------------------------------------------------------

    def _grow(self, c: _Computation, steps: int) -> None:
        makers = [
            (self._unary, 8),
            (self._binary, 10),
            (self._identity, 6),
            (self._repeat, 4),
            (self._reshape, 4),
            (self._transpose, 4),
            (self._broadcast, 4),
            (self._slice, 3),
            (self._concatenate, 2),
            (self._pad, 2),
            (self._reverse, 1),
            (self._reduce, 4),
            (self._reduce_window, 2),
            (self._dot, 3),
            (self._convert, 3),
            (self._compare_select, 3),
            (self._clamp, 1),
            (self._iota, 1),
            (self._dynamic_slice, 2),
            (self._gather, 1),
            (self._scatter, 1),
            (self._sort, 2),
            (self._map, 1),
            (self._tuple, 2),
            (self._complex, 1),
        ]
        if self.depth < 2:
            makers += [(self._call, 2), (self._conditional, 2), (self._while, 2)]
        functions = [maker for maker, _ in makers]
        weights = [weight for _, weight in makers]
        for _ in range(steps):
            self.rng.choices(functions, weights)[0](c)

    def _unary(self, c: _Computation) -> None:
        value = self._pick(c)
        if value is None:
            return
        rng, t = self.rng, value.type
        if t.dtype == "pred":
            self._emit(c, t, "not", [value])
        elif t.is_int:
            opcodes = ["not", "abs", "negate", "popcnt", "count-leading-zeros", "sign"]
            if t.dtype not in _SIGNED:
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
                size = self._emit(c, t, "abs", [result])
                above = self._emit(
                    c, t, "add", [size, one], magnitude=size.magnitude + 1
                )
                opcode = rng.choice(["log", "sqrt", "rsqrt", "log-plus-one"])
                self._emit(
                    c, t, opcode, [above], magnitude=above.magnitude, is_exact=False
                )

    def _binary(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype != "c64")
        if value is None:
            return
        rng, t = self.rng, value.type
        other = self._like(c, value)
        if t.dtype == "pred":
            self._emit(c, t, rng.choice(["and", "or", "xor"]), [value, other])
        elif t.is_int:
            opcode = rng.choice(
                ["add", "subtract", "multiply", "and", "or", "xor", "maximum"]
                + ["minimum", "divide", "remainder"]
                + ["shift-left", "shift-right-logical", "shift-right-arithmetic"]
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

    def _identity(self, c: _Computation) -> None:
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
        elif kind == 3 and (t.is_float or t.dtype in _SIGNED):
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
                f"dimensions={_braces(order)}",
            )
            self._emit(c, t, "transpose", [moved], f"dimensions={_braces(back)}")
        elif kind == 6:
            pair = self._name("tuple")
            other = self._like(c, value)
            c.lines.append(f"  {pair} = ({t}, {t}) tuple({value.name}, {other.name})")
            chosen, index = rng.choice([(value, 0), (other, 1)])
            name = self._name("element")
            c.lines.append(f"  {name} = {t} get-tuple-element({pair}), index={index}")
            c.values.append(_Value(name, t, chosen.magnitude, chosen.is_exact))
        else:
            zero = self._constant(c, t, "0")
            if t.is_int:
                self._emit(c, t, "multiply", [value, zero])
            else:
                self._emit(c, t, "subtract", [value, zero])

    def _repeat(self, c: _Computation) -> None:
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
        c.values.append(_Value(name, value.type, value.magnitude, value.is_exact))

    @staticmethod
    def _line_of(c: _Computation, value: _Value) -> str:
        return next(line for line in c.lines if line.startswith(f"  {value.name} ="))

    def _reshape(self, c: _Computation) -> None:
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

    def _transpose(self, c: _Computation) -> None:
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
            f"dimensions={_braces(order)}",
        )

    def _broadcast(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: len(v.type.dims) < 4)
        if value is None:
            return
        dims = list(value.type.dims)
        positions = list(range(len(dims)))
        for _ in range(self.rng.randint(1, 5 - len(dims))):
            at = self.rng.randint(0, len(dims))
            dims.insert(at, self.rng.randint(1, 4))
            positions = [p + (p >= at) for p in positions]
        if math.prod(dims) > _MAX_ELEMENTS:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "broadcast",
            [value],
            f"dimensions={_braces(positions)}",
        )

    def _slice(self, c: _Computation) -> None:
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

    def _concatenate(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != ())
        if value is None or value.type.dtype == "c64":
            return
        axis = self.rng.randrange(len(value.type.dims))
        values = [value]
        values += [self._like(c, value) for _ in range(self.rng.randint(0, 2))]
        dims = list(value.type.dims)
        dims[axis] *= len(values)
        if math.prod(dims) > _MAX_ELEMENTS:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "concatenate",
            values,
            f"dimensions={{{axis}}}",
        )

    def _pad(self, c: _Computation) -> None:
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
        if math.prod(dims) > _MAX_ELEMENTS:
            return
        self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "pad",
            [value, zero],
            f"padding={'x'.join(parts)}",
        )

    def _reverse(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.dims != ())
        if value is None:
            return
        rank = len(value.type.dims)
        axes = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        self._emit(c, value.type, "reverse", [value], f"dimensions={_braces(axes)}")

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

    def _reduction(self, c: _Computation, dtype: str) -> tuple[str, _Value]:
        if dtype == "pred":
            opcode, start = self.rng.choice([("and", "true"), ("or", "false")])
        elif dtype in _FLOATS:
            opcode, start = self.rng.choice(
                [("add", "0"), ("maximum", "-inf"), ("minimum", "inf"), ("add", "0")]
            )
        else:
            opcode, start = self.rng.choice(
                [("add", "0"), ("maximum", "0"), ("multiply", "1"), ("or", "0")]
            )
        init = self._constant(c, _Type(dtype, ()), start)
        if "inf" in start:
            # Nothing else may use it: arithmetic on it gives NaN.
            c.values.remove(init)
        return opcode, init

    def _reduce(self, c: _Computation) -> None:
        value = self._pick(
            c, lambda v: 0 not in v.type.dims != () and v.type.dtype != "c64"
        )
        if value is None:
            return
        value = self._bounded(c, value)
        rank = len(value.type.dims)
        axes = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        kept = tuple(d for i, d in enumerate(value.type.dims) if i not in axes)
        opcode, init = self._reduction(c, value.type.dtype)
        count = math.prod(value.type.dims) / max(1, math.prod(kept))
        size = value.magnitude * (count if opcode == "add" else 1)
        result = self._emit(
            c,
            value.type.with_dims(kept),
            "reduce",
            [value, init],
            f"dimensions={_braces(axes)}, "
            f"to_apply={self._reducer(value.type.dtype, opcode)}",
            magnitude=size,
            is_exact=value.is_exact and opcode != "add",
        )
        self._bounded(c, result)

    def _reduce_window(self, c: _Computation) -> None:
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
        opcode, init = self._reduction(c, value.type.dtype)
        size = value.magnitude * (math.prod(sizes) if opcode == "add" else 1)
        result = self._emit(
            c,
            value.type.with_dims(tuple(dims)),
            "reduce-window",
            [value, init],
            f"window={{size={'x'.join(map(str, sizes))} "
            f"stride={'x'.join(map(str, strides))} pad={'x'.join(pads)}}}, "
            f"to_apply={self._reducer(value.type.dtype, opcode)}",
            magnitude=size,
            is_exact=value.is_exact and opcode != "add",
        )
        self._bounded(c, result)

    def _dot(self, c: _Computation) -> None:
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
        if math.prod(out) > _MAX_ELEMENTS or len(out) > 5:
            return
        right = self._like(c, _Value("", left.type.with_dims(tuple(right_dims)), 1.0))
        right = self._bounded(c, right)
        count = math.prod(left.type.dims[i] for i in contracting)
        attributes = [
            f"lhs_batch_dims={_braces(batch)}" if batch else "",
            f"rhs_batch_dims={_braces(range(num_batch))}" if batch else "",
            f"lhs_contracting_dims={_braces(contracting)}",
            "rhs_contracting_dims="
            + _braces(range(num_batch, num_batch + len(contracting))),
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

    def _convert(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype != "c64")
        if value is None:
            return
        rng, t = self.rng, value.type
        if t.dtype in ("s32", "u32") and rng.random() < 0.2:
            other = "u32" if t.dtype == "s32" else "s32"
            self._emit(c, _Type(other, t.dims), "bitcast-convert", [value])
            return
        if t.is_float:
            # To an integer type only what is in range of it, and exact.
            small = value.is_exact and value.magnitude <= 100
            target = rng.choice([*_FLOATS, *(_SIGNED if small else ())])
        elif t.dtype == "pred":
            target = rng.choice([*_FLOATS, *_INTS])
        else:
            # Integers may be large: into floats only by way of a small one.
            three = self._constant(c, t, "3")
            value = self._emit(c, t, "and", [value, three], magnitude=3)
            target = rng.choice([*_FLOATS, *_INTS])
        is_exact = value.is_exact and (t.is_int or t.dtype == "pred")
        self._emit(
            c,
            _Type(target, t.dims),
            "convert",
            [value],
            magnitude=max(3.0, value.magnitude),
            is_exact=is_exact or target not in _FLOATS,
        )

    def _compare_select(self, c: _Computation) -> None:
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
            _Type("pred", value.type.dims),
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

    def _clamp(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.is_float)
        if value is None:
            return
        # Broadcast: the evaluator knows no clamp of an array by scalars.
        low = self._constant(c, value.type, "-1")
        high = self._constant(c, value.type, "2")
        self._emit(c, value.type, "clamp", [low, value, high])

    def _iota(self, c: _Computation) -> None:
        t = self._type(self.rng.choice(["s32", "s32", "f32", "u8"]))
        if not t.dims:
            return
        axis = self.rng.randrange(len(t.dims))
        self._emit(c, t, "iota", [], f"iota_dimension={axis}", magnitude=16)

    def _index(self, c: _Computation) -> _Value:
        """A scalar s32, sometimes out of range on purpose: slices clamp it."""
        found = self._pick(c, lambda v: v.type == _Type("s32", ()))
        if found is not None and self.rng.random() < 0.5:
            return found
        return self._constant(c, _Type("s32", ()), self.rng.choice(["0", "1", "9"]))

    def _dynamic_slice(self, c: _Computation) -> None:
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
            f"dynamic_slice_sizes={_braces(sizes)}",
            magnitude=value.magnitude,
            is_exact=value.is_exact,
        )
        if self.rng.random() < 0.5:
            self._emit(
                c,
                value.type,
                "dynamic-update-slice",
                [value, part, *[self._index(c) for _ in sizes]],
                magnitude=value.magnitude,
                is_exact=value.is_exact,
            )

    def _rows(self, c: _Computation) -> tuple[_Value, _Value] | None:
        """A matrix, and indices of some of its rows."""
        value = self._pick(c, lambda v: len(v.type.dims) == 2 and 0 not in v.type.dims)
        if value is None or value.type.dtype == "c64":
            return None
        t = _Type("s32", (self.rng.randint(1, 4), 1))
        iota = self._emit(c, t, "iota", [], "iota_dimension=0", magnitude=4)
        limit = self._constant(c, t, str(value.type.dims[0] - 1))
        return value, self._emit(c, t, "minimum", [iota, limit])

    def _gather(self, c: _Computation) -> None:
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

    def _scatter(self, c: _Computation) -> None:
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

    def _sort(self, c: _Computation) -> None:
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
            _Type("s32", t.dims),
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
            c.values.append(_Value(element, source.type, source.magnitude))

    def _map(self, c: _Computation) -> None:
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
            f"dimensions={_braces(range(len(value.type.dims)))}, "
            f"to_apply={self._reducer(value.type.dtype, 'multiply')}",
            magnitude=value.magnitude * other.magnitude,
            is_exact=False,
        )

    def _tuple(self, c: _Computation) -> None:
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
        c.values.append(_Value(leaf, a.type, a.magnitude, a.is_exact))

    def _complex(self, c: _Computation) -> None:
        value = self._pick(c, lambda v: v.type.dtype == "f32")
        if value is None:
            return
        value = self._bounded(c, value)
        other = self._bounded(c, self._like(c, value))
        t = _Type("c64", value.type.dims)
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

    # --- computations ---------------------------------------------------------

    def _callee(self, types: list[_Type], result: _Type | None) -> tuple[str, _Type]:
        """A computation of `types`, with `result` if that is given."""
        c = _Computation(self._name("callee"))
        self.depth += 1
        for number, t in enumerate(types):
            value = self._parameter(c, number, t)
            # The caller's values are not known in size.
            c.values[-1] = _Value(value.name, t, 4.0, is_exact=False)
        self._grow(c, self.rng.randint(1, 8))
        self.depth -= 1
        wanted = self._pick(c, lambda v: result is None or v.type == result)
        assert wanted is not None
        wanted = self._settled(c, wanted)
        return (
            self._finish(
                c, f"  ROOT {self._name('root')} = {wanted.type} copy({wanted.name})"
            ),
            wanted.type,
        )

    def _settled(self, c: _Computation, value: _Value) -> _Value:
        """A value in [-1, 1] where it is a float, so that callers may rely on it."""
        if not value.type.is_float:
            return value
        return self._emit(c, value.type, "tanh", [value], magnitude=1, is_exact=False)

    def _arguments(self, c: _Computation) -> list[_Value]:
        values = [self._pick(c) for _ in range(self.rng.randint(1, 3))]
        return [
            self._settled(c, v)
            for v in values
            if v is not None and v.type.dtype != "c64"
        ]

    def _call(self, c: _Computation) -> None:
        arguments = self._arguments(c)
        if not arguments:
            return
        name, t = self._callee([a.type for a in arguments], None)
        for _ in range(self.rng.choice([1, 1, 2])):
            self._emit(
                c, t, "call", arguments, f"to_apply={name}", magnitude=1, is_exact=False
            )

    def _conditional(self, c: _Computation) -> None:
        arguments = self._arguments(c)[:1]
        if not arguments:
            return
        argument = arguments[0]
        predicate = self._pick(c, lambda v: v.type == _Type("pred", ()))
        if predicate is None or self.rng.random() < 0.3:
            predicate = self._constant(c, _Type("pred", ()))
        branches = [self._callee([argument.type], argument.type)[0] for _ in range(2)]
        self._emit(
            c,
            argument.type,
            "conditional",
            [predicate, argument, argument],
            f"true_computation={branches[0]}, false_computation={branches[1]}",
            magnitude=1,
            is_exact=False,
        )

    def _while(self, c: _Computation) -> None:
        arguments = self._arguments(c)
        if not arguments:
            return
        types = [_Type("s32", ()), *(a.type for a in arguments)]
        state = f"({', '.join(map(str, types))})"
        trips = self.rng.randint(0, 3)
        condition = self._name("condition")
        self.texts.append(
            f"{condition} {{\n  s = {state} parameter(0)\n"
            "  i = s32[] get-tuple-element(s), index=0\n"
            f"  n = s32[] constant({trips})\n"
            "  ROOT r = pred[] compare(i, n), direction=LT\n}\n"
        )
        body = _Computation(self._name("body"))
        body.lines.append(f"  s = {state} parameter(0)")
        elements = []
        for index, t in enumerate(types):
            name = self._name("element")
            body.lines.append(f"  {name} = {t} get-tuple-element(s), index={index}")
            elements.append(_Value(name, t, 1.0, is_exact=index == 0))
        body.values += elements[1:]
        self.depth += 1
        self._grow(body, self.rng.randint(1, 8))
        self.depth -= 1
        one = self._constant(body, _Type("s32", ()), "1")
        following = self._emit(body, _Type("s32", ()), "add", [elements[0], one])
        results = [following]
        for element in elements[1:]:
            if self.rng.random() < 0.3:
                results.append(element)  # carried along
                continue
            last = [v for v in body.values if v.type == element.type][-1]
            results.append(self._settled(body, last))
        names = ", ".join(r.name for r in results)
        self._finish(body, f"  ROOT {self._name('root')} = {state} tuple({names})")
        zero = self._constant(c, _Type("s32", ()), "0")
        init, loop = self._name("init"), self._name("loop")
        names = ", ".join([zero.name, *(a.name for a in arguments)])
        c.lines += [
            f"  {init} = {state} tuple({names})",
            f"  {loop} = {state} while({init}), condition={condition}, body={body.name}",
        ]
        for index, t in enumerate(types):
            if self.rng.random() < 0.3:
                continue
            name = self._name("carried")
            c.lines.append(f"  {name} = {t} get-tuple-element({loop}), index={index}")
            c.values.append(_Value(name, t, 1.0, is_exact=not t.is_float))

    def _dead_computation(self) -> None:
        self._callee([self._type(), self._type()], None)
