# SPDX-License-Identifier: Apache-2.0
"""Compares each replacement of a rule with what it replaces, beyond small integers.

Small integers (`rules.check`) do not show what a rule does to fractions, and outputs
hide errors that cancel in them. The inputs here are random numbers, and odd multiples
of 1/2, for which the roundings to integers differ. Then they are integers over the
whole range of their types, large floats and, for exact rules, infinities, NaN and zeros
of either sign.

A difference above the tolerance of the types is an error where it is there in float64,
too, or for most random numbers, as that of a rounding that the rule leaves out.
Otherwise it is the rounding of terms that cancel. For large floats it must be there in
float64, so that a sum that overflows in another order is no error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, ExecuteError
from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule
from ..hlo.numerics import Numerics
from ..rewrite.alternatives import Alternatives
from ..rewrite.verify import ChoiceError, verify_alternatives
from ..runtime.extreme_inputs import extreme_inputs, has_free_integers
from ..runtime.interpreter import evaluate
from ..runtime.random_inputs import random_inputs
from ..runtime.upcast import upcast_inputs, upcast_to_float64
from .rule import Replacement, Rule

Array = npt.NDArray[Any]

# Inputs of each kind, of few elements; of more, as many as have so many elements.
_NUM_DRAWS = 6
_NUM_INTEGER_DRAWS = 32
_MAX_DRAWN = 1 << 21
_MAX_HALVES = 7
# What differs by more in float64 is not rounding.
_FLOAT64_TOLERANCE = 1e-6
# The tolerance is this power of the type's epsilon: 7e-5 for f32, 0.05 for bf16.
_POWER = 0.6
_COMPUTED = re.compile(r"= (\w+)\[[^=]* (?!parameter\()[\w\-]+\(")


@dataclass(frozen=True)
class WrongChoice:
    """A replacement that has another value than what it replaces.

    Attributes:
        alternative: its index.
        choice: of this alternative.
        error: how much it differs.
        inputs: of the module for which it does.
    """

    alternative: int
    choice: int
    error: ChoiceError
    inputs: Sequence[Array]


def find_wrong_choice(
    alternatives: Alternatives, module: HloModule, *, tolerance: float, seed: int = 0
) -> WrongChoice | None:
    """A choice that differs from its original by more than rounding; None if none does.

    Args:
        alternatives: of the module.
        module: the original.
        tolerance: relative; 0 where every difference counts.
        seed: of the inputs.
    """
    doubtful: dict[tuple[int, int], list[WrongChoice]] = defaultdict(list)
    num_compared: Counter[tuple[int, int]] = Counter()
    for inputs, is_random in _draws(module, seed):
        found = verify_alternatives(alternatives, inputs)
        far = [each for each in found if each.relative > tolerance]
        if is_random:
            num_compared.update(_key(each) for each in found if each.num_compared)
        wide = _in_float64(alternatives, inputs) if far and tolerance else {}
        for each in far:
            wrong = WrongChoice(*_key(each), each, inputs)
            if not tolerance or wide.get(_key(each), 0) > _FLOAT64_TOLERANCE:
                return wrong
            if is_random:
                doubtful[_key(each)].append(wrong)
    for key, wrongs in doubtful.items():
        if 2 * len(wrongs) > num_compared[key]:
            return wrongs[0]
    return None


def num_draws(module: HloModule, most: int) -> int:
    """How many inputs to draw of one kind: fewer where these are large.

    Args:
        module: that takes them.
        most: for small inputs.
    """
    sizes = [int(np.prod(spec.shape)) for spec in module.input_specs()]
    return max(1, min(most, _MAX_DRAWN // max(1, sum(sizes))))


def find_wrong_extreme(
    alternatives: Alternatives,
    module: HloModule,
    *,
    tolerance: float,
    numerics: Numerics,
    seed: int = 0,
) -> WrongChoice | None:
    """As `find_wrong_choice`, for inputs over the ranges of their types.

    Args:
        alternatives: of the module.
        module: the original.
        tolerance: relative; 0 where every difference counts.
        numerics: "exact": for infinities and NaN, too; "unsafe": where the original is
            infinite, differences do not count.
        seed: of the inputs.
    """
    for inputs in _extreme_draws(module, numerics, seed):
        found = verify_alternatives(alternatives, inputs)
        if numerics == "exact":
            far = [each for each in found if each.absolute or each.num_nans_lost]
        else:
            far = [each for each in found if each.relative > tolerance]
        if numerics == "unsafe":
            far = [each for each in far if np.isfinite(each.absolute)]
        wide = _in_float64(alternatives, inputs) if far and tolerance else {}
        for each in far:
            if not tolerance or wide.get(_key(each), 0) > _FLOAT64_TOLERANCE:
                return WrongChoice(*_key(each), each, inputs)
    return None


def special_draws(module: HloModule, seed: int) -> Iterator[list[Any]]:
    """Inputs with infinities, NaN and zeros of either sign, where there are floats."""
    if not any(_is_float(spec) for spec in module.input_specs()):
        return
    for number in range(num_draws(module, _NUM_INTEGER_DRAWS)):
        yield extreme_inputs(module, seed=seed + number, floats="special")


def _extreme_draws(
    module: HloModule, numerics: Numerics, seed: int
) -> Iterator[list[Any]]:
    if has_free_integers(module):
        for number in range(num_draws(module, _NUM_INTEGER_DRAWS)):
            for edges in (True, False):
                yield extreme_inputs(module, seed=seed + number, edges=edges)
    if any(_is_float(spec) for spec in module.input_specs()):
        for number in range(num_draws(module, _NUM_DRAWS)):
            yield extreme_inputs(module, seed=seed + number, floats="moderate")
            yield extreme_inputs(module, seed=seed + number, floats="large")
    if numerics == "exact":
        yield from special_draws(module, seed)


def _is_float(spec: ArraySpec) -> bool:
    return spec.hlo_dtype[0] in "fc" or spec.hlo_dtype == "bf16"


class Rounding:
    """Tells whether outputs differ by rounding alone.

    Those of exponentials, quotients and the like do, also for integers.
    """

    def __init__(
        self, module: HloModule, results: Sequence[HloModule], tolerance: float
    ) -> None:
        """Makes nothing yet.

        Args:
            module: the original.
            results: what each choice makes of it.
            tolerance: relative; 0 where every difference counts.
        """
        self._modules = (module, *results)
        self._tolerance = tolerance

    def explains(
        self,
        number: int,
        inputs: Sequence[Array],
        want: Sequence[Array],
        got: Sequence[Array],
    ) -> bool:
        """Whether outputs are close, and much closer in float64.

        Args:
            number: of the result.
            inputs: of the modules.
            want: outputs of the original.
            got: outputs of the result.
        """
        if not self._tolerance or not _are_close(want, got, self._tolerance):
            return False
        try:
            wide = self._in_float64
        except ArgumentError:
            return False
        arrays = upcast_inputs(wide[0], inputs)
        want = evaluate(wide[0], *arrays)
        return _are_close(want, evaluate(wide[number + 1], *arrays), _FLOAT64_TOLERANCE)

    @cached_property
    def _in_float64(self) -> list[HloModule]:
        return [upcast_to_float64(each) for each in self._modules]


def _are_close(want: Sequence[Array], got: Sequence[Array], tolerance: float) -> bool:
    for first, second in zip(want, got, strict=True):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        if first.dtype.kind in "biu":
            if not np.array_equal(first, second):
                return False
            continue
        kind = np.complex128 if first.dtype.kind == "c" else np.float64
        one, other = first.astype(kind), second.astype(kind)
        is_finite = np.isfinite(one)
        size = np.abs(one[is_finite]).max(initial=0)
        if not np.allclose(one, other, 0, tolerance * size, equal_nan=True):
            return False
    return True


def tolerance_of(
    rule: Rule, replacements: Sequence[Replacement], library: HloModule
) -> float:
    """The relative error that rounding explains, by the types of the floats.

    That of the coarsest type of the results, or of values that both sides compute: a
    rule may reassociate sums in bf16, and may not leave out a rounding to bf16. An
    exact rule has none.

    Args:
        rule: the rule.
        replacements: what it proposes.
        library: the module with their computations.
    """
    if rule.numerics == "exact":
        return 0.0
    lines = [each for each in rule.pattern.lines.values() if not each.is_argument]
    before, results = (
        {each.match[name].dtype for each in replacements for name in names}
        for names in ([line.name for line in lines], rule.pattern.roots)
    )
    after = set(_COMPUTED.findall(library.to_text()))
    epsilons = map(_epsilon, results | (before & after))
    return float(max(epsilons, default=0.0) ** _POWER)


def _epsilon(dtype: str) -> float:
    if dtype[:1] not in ("b", "f", "c"):
        return 0.0
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    return float(finfo(ArraySpec((), dtype).dtype).eps)


def _key(error: ChoiceError) -> tuple[int, int]:
    return error.alternative, error.choice


def _in_float64(
    alternatives: Alternatives, inputs: Sequence[Array]
) -> dict[tuple[int, int], float]:
    """Relative errors in float64; none where these are not known."""
    try:
        found = verify_alternatives(alternatives, inputs, float64=True)
    except (ArgumentError, ExecuteError):
        return {}
    return {_key(each): each.relative for each in found}


def _draws(module: HloModule, seed: int) -> Iterator[tuple[list[Any], bool]]:
    """Inputs, and whether they are random numbers rather than halves."""
    for number in range(num_draws(module, _NUM_DRAWS)):
        drawn = random_inputs(module, seed=seed + number)
        yield drawn, True
        rng = np.random.default_rng([seed, number])
        pairs = zip(module.input_specs(), drawn, strict=True)
        yield [_halves(spec, array, rng) for spec, array in pairs], False


def _halves(spec: ArraySpec, array: Any, rng: np.random.Generator) -> Any:
    """Odd multiples of 1/2, and integers of both signs; others stay as they are."""
    kind = spec.hlo_dtype
    if kind[0] == "s":
        signs: Array = rng.choice([-1, 1], spec.shape)
        return (array * signs).astype(array.dtype)
    if not _is_float(spec):
        return array
    halves: Array = rng.integers(-_MAX_HALVES, _MAX_HALVES, (2, *spec.shape)) + 0.5
    values = halves[0] + 1j * halves[1] if kind[0] == "c" else halves[0]
    return np.asarray(values).astype(array.dtype)
