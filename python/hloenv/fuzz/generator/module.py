# SPDX-License-Identifier: Apache-2.0
"""Seeded random modules that parse, verify, and that XLA's evaluator can run.

The same seed gives the same text in every process. Values are built so that
rewriting changes them by rounding alone: magnitudes stay small, so that nothing
overflows, and what jumps (floor, compare, conversion to integers) is applied only
to values that no rounding has touched.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, get_args

from .builder import ArrayType, Computation, Value
from .effects import EffectSteps
from .elementwise import ElementSteps
from .grids import GridSteps
from .prefixes import PrefixSteps
from .shapes import ShapeSteps

Kind = Literal["seed", "wide", "grid"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def random_module(seed: int, size: int = 40, *, kind: Kind = "seed") -> str:
    """HLO text of a module.

    Args:
        seed: which module.
        size: about how many steps build the entry; the instruction count is a few
            times that.
        kind: "seed": arrays of at most 256 elements; "wide": with a few kinds of rare
            opcodes as well, some of which XLA's evaluator does not know; "grid":
            arrays of thousands of elements, which many rules for real sizes ask for.
    """
    rng = random.Random(f"hloenv module {seed}")
    generator = _Grids(rng, size) if kind == "grid" else _Generator(rng, size)
    if kind == "wide":
        # A few kinds for each module, or none could be evaluated.
        generator.rare = rng.sample(generator.rare_steps(), 3)
    return generator.module(seed)


class _Generator(ElementSteps, ShapeSteps, EffectSteps):
    """Steps that make computations, and the module around them."""

    max_outputs = 4

    def __init__(self, rng: random.Random, size: int) -> None:
        super().__init__(rng, size)
        self.rare: list[Callable[[Computation], None]] = []

    def rare_steps(self) -> list[Callable[[Computation], None]]:
        """Steps with rare opcodes."""
        return [
            self._functions,
            self._precision,
            self._convolution,
            self._linear_algebra,
            self._batch_norm,
            self._fft,
            self._topk,
            self._select_and_scatter,
            self._dynamic,
            self._fusion,
            self._barrier,
            self._ragged_dot,
            self._small_types,
            self._complex_functions,
            self._bitcast,
            self._collective,
            self._ids,
            self._pair,
            self._async,
            self._tokens,
            self._send_receive,
            self._chance,
            self._bits,
            self._foreign,
        ]

    def module(self, seed: int) -> str:
        """The module's text."""
        entry = Computation("main")
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

    def _root(self, c: Computation) -> str:
        """A tuple of a few values, late ones above all, with repeats and nesting."""
        late = c.values[-2 * self.max_outputs :]
        most = self.rng.randint(1, self.max_outputs)
        chosen = self.rng.sample(late, min(len(late), most))
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
        shape, operands = ", ".join(types), ", ".join(names)
        return f"  ROOT {self._name('root')} = ({shape}) tuple({operands})"

    def _makers(self) -> list[tuple[Callable[[Computation], None], int]]:
        """The steps with their weights, but those that make computations."""
        return [
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
            *[(step, 5) for step in self.rare],
        ]

    def _grow(self, c: Computation, steps: int) -> None:
        makers = self._makers()
        if self.depth < 2:
            makers += [(self._call, 2), (self._conditional, 2), (self._while, 2)]
        functions = [maker for maker, _ in makers]
        weights = [weight for _, weight in makers]
        for _ in range(steps):
            self.rng.choices(functions, weights)[0](c)

    def _callee(
        self, types: list[ArrayType], result: ArrayType | None
    ) -> tuple[str, ArrayType]:
        """A computation of `types`, with `result` if that is given."""
        c = Computation(self._name("callee"))
        self.depth += 1
        for number, t in enumerate(types):
            value = self._parameter(c, number, t)
            # The caller's values are not known in size.
            c.values[-1] = Value(value.name, t, 4.0, is_exact=False)
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

    def _settled(self, c: Computation, value: Value) -> Value:
        """A value in [-1, 1] where it is a float, so that callers may rely on it."""
        if not value.type.is_float:
            return value
        return self._emit(c, value.type, "tanh", [value], magnitude=1, is_exact=False)

    def _arguments(self, c: Computation) -> list[Value]:
        values = [self._pick(c) for _ in range(self.rng.randint(1, 3))]
        return [
            self._settled(c, v)
            for v in values
            if v is not None and v.type.dtype != "c64"
        ]

    def _call(self, c: Computation) -> None:
        arguments = self._arguments(c)
        if not arguments:
            return
        name, t = self._callee([a.type for a in arguments], None)
        for _ in range(self.rng.choice([1, 1, 2])):
            self._emit(
                c, t, "call", arguments, f"to_apply={name}", magnitude=1, is_exact=False
            )

    def _conditional(self, c: Computation) -> None:
        arguments = self._arguments(c)[:1]
        if not arguments:
            return
        argument = arguments[0]
        predicate = self._pick(c, lambda v: v.type == ArrayType("pred", ()))
        if predicate is None or self.rng.random() < 0.3:
            predicate = self._constant(c, ArrayType("pred", ()))
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

    def _while(self, c: Computation) -> None:
        arguments = self._arguments(c)
        if not arguments:
            return
        types = [ArrayType("s32", ()), *(a.type for a in arguments)]
        state = f"({', '.join(map(str, types))})"
        trips = self.rng.randint(0, 3)
        condition = self._name("condition")
        self.texts.append(
            f"{condition} {{\n  s = {state} parameter(0)\n"
            "  i = s32[] get-tuple-element(s), index=0\n"
            f"  n = s32[] constant({trips})\n"
            "  ROOT r = pred[] compare(i, n), direction=LT\n}\n"
        )
        body = Computation(self._name("body"))
        body.lines.append(f"  s = {state} parameter(0)")
        elements = []
        for index, t in enumerate(types):
            name = self._name("element")
            body.lines.append(f"  {name} = {t} get-tuple-element(s), index={index}")
            elements.append(Value(name, t, 1.0, is_exact=index == 0))
        body.values += elements[1:]
        self.depth += 1
        self._grow(body, self.rng.randint(1, 8))
        self.depth -= 1
        one = self._constant(body, ArrayType("s32", ()), "1")
        following = self._emit(body, ArrayType("s32", ()), "add", [elements[0], one])
        results = [following]
        for element in elements[1:]:
            if self.rng.random() < 0.3:
                results.append(element)  # carried along
                continue
            last = [v for v in body.values if v.type == element.type][-1]
            results.append(self._settled(body, last))
        names = ", ".join(r.name for r in results)
        self._finish(body, f"  ROOT {self._name('root')} = {state} tuple({names})")
        zero = self._constant(c, ArrayType("s32", ()), "0")
        init, loop = self._name("init"), self._name("loop")
        names = ", ".join([zero.name, *(a.name for a in arguments)])
        c.lines += [
            f"  {init} = {state} tuple({names})",
            f"  {loop} = {state} while({init}), "
            f"condition={condition}, body={body.name}",
        ]
        for index, t in enumerate(types):
            if self.rng.random() < 0.3:
                continue
            name = self._name("carried")
            c.lines.append(f"  {name} = {t} get-tuple-element({loop}), index={index}")
            c.values.append(Value(name, t, 1.0, is_exact=not t.is_float))

    def _dead_computation(self) -> None:
        self._callee([self._type(), self._type()], None)


class _Grids(GridSteps, PrefixSteps, _Generator):
    """Modules of large arrays."""

    max_elements = 16_000
    # Many: what no output needs is not decided.
    max_outputs = 24

    def __init__(self, rng: random.Random, size: int) -> None:
        super().__init__(rng, size)
        self._draw_base()

    def _rounds(self, c: Computation) -> None:
        """A loop of few iterations on two arrays of indices, as of a hash."""
        rng, words = self.rng, ArrayType("s32", self.base)
        number = ArrayType("s32", ())
        state = f"({number}, {words}, {words})"
        condition, body = self._name("condition"), self._name("body")
        known = ["x", "y"]
        lines = [f"  k = s32[] constant({rng.randint(1, 31)})"]
        lines.append(f"  b = {words} broadcast(k), dimensions={{}}")
        for place in range(rng.randint(2, 6)):
            opcode = rng.choice(["add", "xor", "or", "multiply", "subtract"])
            shift = rng.choice(["shift-left", "shift-right-logical"])
            lines += [
                f"  t{place} = {words} {shift}({rng.choice(known)}, b)",
                f"  v{place} = {words} {opcode}(t{place}, {rng.choice(known)})",
            ]
            known.append(f"v{place}")
        self.texts.append(
            f"{condition} {{\n  s = {state} parameter(0)\n"
            f"  i = {number} get-tuple-element(s), index=0\n"
            f"  n = {number} constant({rng.randint(1, 9)})\n"
            "  ROOT r = pred[] compare(i, n), direction=LT\n}\n\n"
            f"{body} {{\n  s = {state} parameter(0)\n"
            f"  i = {number} get-tuple-element(s), index=0\n"
            f"  x = {words} get-tuple-element(s), index=1\n"
            f"  y = {words} get-tuple-element(s), index=2\n"
            f"  one = {number} constant(1)\n  next = {number} add(i, one)\n"
            + "\n".join(lines)
            + f"\n  ROOT r = {state} tuple(next, {known[-1]}, {rng.choice(known)})\n"
            "}\n"
        )
        axes = [rng.randrange(len(self.base)) for _ in range(2)]
        first, second = (
            self._emit(c, words, "iota", [], f"iota_dimension={axis}") for axis in axes
        )
        zero = self._constant(c, number, "0")
        init, loop = self._name("init"), self._name("loop")
        c.lines += [
            f"  {init} = {state} tuple({zero.name}, {first.name}, {second.name})",
            f"  {loop} = {state} while({init}), condition={condition}, body={body}",
        ]
        results = []
        for index in rng.choice([(1, 2), (1, 2), (1,)]):
            name = self._name("word")
            c.lines.append(
                f"  {name} = {words} get-tuple-element({loop}), index={index}"
            )
            results.append(Value(name, words, 2.0**32))
        joined = self._emit(
            c, words, "xor", [results[0], results[-1]], magnitude=2.0**32
        )
        mask = self._constant(c, words, "255")
        self._emit(c, words, "and", [joined, mask], magnitude=255)
        c.values = [each for each in c.values if each.magnitude < 2.0**32]

    def _makers(self) -> list[tuple[Callable[[Computation], None], int]]:
        return [
            (self._unary, 5),
            (self._binary, 8),
            (self._rounds, 2),
            (self._roll, 6),
            (self._neighbours, 6),
            (self._halves, 2),
            (self._window, 3),
            (self._cumulative, 2),
            (self._prefixes, 1),
            (self._grid_convolution, 3),
            (self._long_filter, 1),
            (self._product, 2),
            (self._pairs, 3),
            (self._table_step, 1),
            (self._normalised, 3),
            (self._broadcast, 1),
            (self._transpose, 2),
            (self._reshape, 1),
            (self._slice, 2),
            (self._concatenate, 1),
            (self._pad, 2),
            (self._reverse, 1),
            (self._reduce, 3),
            (self._compare_select, 3),
            (self._convert, 1),
            (self._clamp, 1),
            (self._iota, 1),
            (self._dynamic_slice, 1),
            (self._gather, 1),
            (self._scatter, 1),
            (self._sort, 1),
            (self._map, 1),
        ]
