# SPDX-License-Identifier: Apache-2.0
"""Checks rules with small integers, with fractions, and over the ranges of types.

Sums and products of few small integers are exact in float types of 16 bits and more, in
every order, so that a rule must give equal outputs, to the bit, whatever its class;
except where they differ by rounding (`rules.values`), as those of exponentials. A
module with few elements is checked on every assignment of -1, 0 and 1 (unsigned: 0, 1
and 2; or of 0 and 1), which proves the equality of functions that are polynomials of
degree at most 2 (or 1) in each element; larger ones are checked on random integers.

Then each replacement is compared with what it replaces, on fractions, integers of any
size and large floats; those of exact rules also on infinities, NaN and zeros of either
sign (`rules.values`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import core
from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule, as_module
from ..hlo.python_passes import Proposals
from ..rewrite.alternatives import Alternatives
from ..runtime.interpreter import evaluate
from .passes import to_proposals
from .pattern import RuleError
from .rule import Rule
from .subject import Subject
from .values import (
    Rounding,
    WrongChoice,
    find_wrong_choice,
    find_wrong_extreme,
    num_draws,
    special_draws,
    tolerance_of,
)

Array = npt.NDArray[Any]

MAX_ASSIGNMENTS = 4096
_RANDOM_DRAWS = 24
_LARGEST = 3
_EXACT = "; an exact rule gives equal floats, others have numerics='rounding'"
# Elements of an array that a message holds.
_MAX_SHOWN = 32


def capture_proposals(module: HloModule, proposals: Proposals) -> Alternatives:
    """The alternatives of proposals."""
    spec = core.given_candidates(
        "rules",
        proposals.library._core,
        [each.to_core() for each in proposals.proposals],
    )
    return Alternatives(core.capture(module._core, [spec]))


def check_rule(
    rule: Rule, example: HloModule | str | os.PathLike[str], *, seed: int = 0
) -> int:
    """Checks a rule at every place of a module.

    Args:
        rule: the rule.
        example: in which it applies; a small module is checked exhaustively.
        seed: of random integers.

    Returns:
        The number of pairs of outputs that were compared.

    Raises:
        RuleError: it does not apply, or an output or a replaced value differs; the
            message has the inputs.
    """
    module = as_module(example)
    replacements = list(rule.replacements(Subject(module)))
    proposals = to_proposals(replacements)
    alternatives = capture_proposals(module, proposals)
    if not len(alternatives):
        raise RuleError(f"rule {rule.name!r} does not apply to its example")
    results = [
        alternatives.apply(decisions) for decisions in single_decisions(alternatives)
    ]
    if all(each.fingerprint() == module.fingerprint() for each in results):
        raise RuleError(
            f"rule {rule.name!r} changes nothing in its example: `after` is `before`"
        )
    tolerance = tolerance_of(rule, replacements, proposals.library)
    rounding = Rounding(module, results, tolerance)
    num_compared = 0
    draws = num_draws(module, _RANDOM_DRAWS)
    for inputs in assignments(module.input_specs(), seed=seed, draws=draws):
        want = evaluate(module, *inputs)
        for number, result in enumerate(results):
            got = evaluate(result, *inputs)
            num_compared += len(want)
            if not all(map(_are_equal, want, got)) and not rounding.explains(
                number, inputs, want, got
            ):
                raise RuleError(_difference(rule, module, inputs, want, got))
    wrong = find_wrong_choice(alternatives, module, tolerance=tolerance, seed=seed)
    if wrong is None:
        wrong = find_wrong_extreme(
            *(alternatives, module),
            tolerance=tolerance,
            numerics=rule.numerics,
            seed=seed,
        )
    if wrong is not None:
        raise RuleError(_wrong_value(rule, module, alternatives, wrong))
    if rule.numerics == "exact":
        _check_signs_of_zeros(rule, module, results, seed)
    return num_compared


def _check_signs_of_zeros(
    rule: Rule, module: HloModule, results: Sequence[HloModule], seed: int
) -> None:
    """Compares outputs to the sign of each zero, which no other check does.

    XLA does not specify which of two zeros the larger or smaller one is.
    """
    if not module.opcode_counts().keys().isdisjoint(("maximum", "minimum")):
        return
    for inputs in special_draws(module, seed):
        want = evaluate(module, *inputs)
        for result in results:
            got = evaluate(result, *inputs)
            if not all(map(_have_equal_zeros, want, got)):
                raise RuleError(
                    _difference(rule, module, inputs, want, got, _have_equal_zeros)
                    + _EXACT
                )


def single_decisions(alternatives: Alternatives) -> Iterator[npt.NDArray[np.int64]]:
    """The decisions that take one choice and keep all other originals."""
    for index, count in enumerate(alternatives.num_choices):
        for choice in range(1, int(count)):
            decisions = alternatives.reject_all()
            decisions[index] = choice
            yield decisions


def assignments(
    specs: Sequence[ArraySpec], *, seed: int = 0, draws: int = _RANDOM_DRAWS
) -> Iterator[list[Array]]:
    """Inputs of small integers: every assignment if there are few, else random ones."""
    # Complex numbers have two parts.
    sizes = [
        int(np.prod(spec.shape, dtype=np.int64)) * (1 + (spec.dtype.kind == "c"))
        for spec in specs
    ]
    total = sum(sizes)
    for values in ((0, 1, -1), (0, 1)):
        if len(values) ** total <= MAX_ASSIGNMENTS:
            for flat in itertools.product(values, repeat=total):
                yield _arrays(specs, sizes, np.array(flat))
            return
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        yield _arrays(specs, sizes, rng.integers(-_LARGEST, _LARGEST + 1, total))


def _arrays(
    specs: Sequence[ArraySpec], sizes: Sequence[int], flat: npt.NDArray[np.int64]
) -> list[Array]:
    parts = np.split(flat, np.cumsum(sizes)[:-1]) if specs else []
    return [
        _array(spec, part).astype(spec.dtype).reshape(spec.shape)
        for spec, part in zip(specs, parts, strict=True)
    ]


def _array(spec: ArraySpec, part: npt.NDArray[np.int64]) -> Array:
    kind = spec.dtype.kind
    if kind == "b":
        return part % 2
    if kind == "u" or spec.dtype.name.startswith("uint"):
        # -1 is another number, 2: three of them, or seven.
        return part % 3 if np.abs(part).max(initial=0) <= 1 else part % 7
    if kind == "c":
        real, imaginary = np.split(part, 2)
        return real + 1j * imaginary
    # bfloat16 holds integers up to 256.
    return np.sign(part) if spec.dtype.name == "bfloat16" else part


def _are_equal(want: Array, got: Array) -> bool:
    if want.shape != got.shape or want.dtype != got.dtype:
        return False
    return bool(np.all(_equal_elements(want, got)))


def _equal_elements(want: Array, got: Array) -> npt.NDArray[np.bool_]:
    are_equal: npt.NDArray[np.bool_] = (want == got) | ((want != want) & (got != got))
    return are_equal


def _have_equal_zeros(want: Array, got: Array) -> bool:
    """Whether zeros of floats at the same places have the same signs."""
    if want.shape != got.shape or want.dtype != got.dtype or want.dtype.kind in "biu":
        return True
    if want.dtype.kind == "c":
        return _have_equal_zeros(want.real, got.real) and _have_equal_zeros(
            want.imag, got.imag
        )
    are_zeros = (want == 0) & (got == 0)
    signs = [np.signbit(each.astype(np.float64)) for each in (want, got)]
    return not np.any(are_zeros & (signs[0] != signs[1]))


def _difference(
    rule: Rule,
    module: HloModule,
    inputs: Sequence[Array],
    want: Sequence[Array],
    got: Sequence[Array],
    are_equal: Callable[[Array, Array], bool] = _are_equal,
) -> str:
    given = "; ".join(map(_shown, inputs))
    pair = next(p for p in zip(want, got, strict=True) if not are_equal(*p))
    return (
        f"rule {rule.name!r} is wrong: for the inputs {given} the module "
        f"{module.name!r} gives {_outputs(*pair)}"
    )


def _wrong_value(
    rule: Rule, module: HloModule, alternatives: Alternatives, wrong: WrongChoice
) -> str:
    """The outputs for the inputs, unless these hide the difference."""
    decisions = alternatives.reject_all()
    decisions[wrong.alternative] = wrong.choice
    want = evaluate(module, *wrong.inputs)
    got = evaluate(alternatives.apply(decisions), *wrong.inputs)
    if not all(map(_are_equal, want, got)):
        text = _difference(rule, module, wrong.inputs, want, got)
    else:
        given = "; ".join(map(_shown, wrong.inputs))
        sites = alternatives[wrong.alternative].sites
        names = ", ".join(each.original for each in sites)
        text = (
            f"rule {rule.name!r} is wrong: for the inputs {given} what replaces "
            f"{names} of the module {module.name!r} differs from it by "
            f"{wrong.error.absolute:.3g}, though no output does"
        )
    if rule.numerics == "exact":
        text += _EXACT
    elif rule.numerics == "rounding" and np.isinf(wrong.error.absolute):
        text += "; if such inputs do not occur, numerics='unsafe' says so"
    return text


def _shown(array: Array) -> str:
    """The elements of a small array, or type and shape of a large one."""
    if array.size <= _MAX_SHOWN:
        return str(array.tolist())
    return f"{array.dtype}{list(array.shape)}"


def _outputs(want: Array, got: Array) -> str:
    """Small outputs, or where large ones differ first."""
    is_of_type = want.shape == got.shape and want.dtype == got.dtype
    if want.size <= _MAX_SHOWN or not is_of_type:
        return f"{_shown(want)}, and after the rule {_shown(got)}"
    differ = ~_equal_elements(want, got)
    first = tuple(np.argwhere(differ)[0].tolist())
    return (
        f"{want[first]} at {list(first)}, and after the rule {got[first]}; "
        f"{differ.sum()} of {differ.size} elements differ"
    )
