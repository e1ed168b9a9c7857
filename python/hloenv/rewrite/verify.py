# SPDX-License-Identifier: Apache-2.0
"""Checks numerically, in XLA's evaluator, that choices equal their originals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._native import core
from .._typing import Array
from ..errors import ArgumentTypeError, PassError
from ..hlo.module import HloModule
from ..hlo.passes import to_core
from ..runtime.interpreter import as_bytes, check_static, evaluate
from ..runtime.random_inputs import random_inputs
from ..runtime.upcast import upcast_inputs, upcast_to_float64
from .alternatives import Alternatives

# Relative differences in float64: below the first they are float64 rounding; above the
# second they cannot be the rounding of a constant to another type.
_FLOAT64_ROUNDING, _ROUNDED_CONSTANT = 1e-9, 1e-2


@dataclass(frozen=True)
class ChoiceError:
    """The numerical error of one choice against its original.

    Attributes:
        alternative: index of the alternative.
        choice: from 1; choice 0 is the original itself.
        absolute: largest |choice - original| over all elements and sites and, in
            loops, iterations, where the original is a number; inf where the choice is
            NaN there.
        relative: the same over the largest |original| of that array.
        num_evaluations: number of executions of both; 0 if they were not reached, as in
            an untaken branch.
        num_nans_lost: elements that are NaN in the original alone, over all sites and
            iterations: XLA's simplifier rewrites 0 * x to 0 for any x.
        num_compared: elements that are numbers in the original, over all sites and
            iterations. If there are none, the choice was not compared.
    """

    alternative: int
    choice: int
    absolute: float
    relative: float
    num_evaluations: int
    num_nans_lost: int
    num_compared: int


def verify_alternatives(
    alternatives: Alternatives,
    inputs: Sequence[Any] | None = None,
    *,
    seed: int = 0,
    float64: bool = False,
) -> list[ChoiceError]:
    """Computes every choice of every alternative beside its original.

    One execution of the alternative graph by XLA's evaluator, nested computations
    included; alternatives of kind "pass" take one more for each choice.

    Args:
        alternatives: the result of a capture.
        inputs: one array for each input of the module; random ones by default.
        seed: of the random inputs.
        float64: compute the same originals and choices in float64 instead, where
            choices that differ only by rounding agree to about 1e-14 (1e-6 if a pass
            has folded constants of another type), and wrong ones do not.

    Returns:
        One record for each choice above 0, by alternative, then choice.

    Raises:
        ArgumentError: the inputs do not match the module, or the alternatives cannot
            be upcast to float64 (`upcast_to_float64`).
        ExecuteError: the evaluator does not support an instruction.
    """
    if not isinstance(alternatives, Alternatives):
        raise ArgumentTypeError(
            "verify_alternatives needs what get_alternatives returns, got "
            f"{type(alternatives).__name__}"
        )
    module = HloModule._wrap(alternatives._capture.module())
    check_static(module)
    if inputs is None:
        inputs = random_inputs(module, seed=seed)
    if float64:
        return _verify_in_float64(alternatives, inputs)
    arrays = as_bytes(inputs, module.input_specs())
    capture = alternatives._capture
    if isinstance(capture, core.Capture):
        records = core.verify_alternatives(capture, arrays)
    else:
        records = core.verify_graph(
            capture.graph(), alternatives.num_choices.tolist(), arrays
        )
    return [ChoiceError(*record) for record in records]


def _verify_in_float64(
    alternatives: Alternatives, inputs: Sequence[Any]
) -> list[ChoiceError]:
    """Upcasts the alternative graph, so that the rewrites are the same ones.

    Constants that a pass has folded keep the rounding of the module's own type, which
    cancellation amplifies. A choice whose difference such a rounding can explain is
    therefore replaced by the same rewrite of the upcast module, if it is found there.
    """
    graph = upcast_to_float64(alternatives.module)
    arrays = upcast_inputs(graph, inputs)
    records = [
        ChoiceError(*record)
        for record in core.verify_graph(
            graph._core,
            alternatives.num_choices.tolist(),
            as_bytes(arrays, graph.input_specs()),
        )
    ]
    # The choices of an indivisible pass are modules, which are not in the graph.
    is_module = [each.kind == "pass" for each in alternatives]
    records = [
        _compare_modules(alternatives, record, arrays)
        if is_module[record.alternative]
        else record
        for record in records
    ]
    doubtful = [
        r for r in records if _FLOAT64_ROUNDING < r.relative < _ROUNDED_CONSTANT
    ]
    if not doubtful:
        return records
    again = _recaptured(alternatives, arrays)
    names = _names_of(alternatives, doubtful)
    return [again.get(names.get(_key(each), ()), each) for each in records]


def _key(record: ChoiceError) -> tuple[int, int]:
    return record.alternative, record.choice


def _names_of(
    alternatives: Alternatives, records: Sequence[ChoiceError]
) -> dict[tuple[int, int], tuple[object, ...]]:
    """Keys that identify choices in another capture: their sites and descriptions."""
    names: dict[tuple[int, int], tuple[object, ...]] = {}
    for record in records:
        alternative = alternatives[record.alternative]
        choice = alternative.choices[record.choice]
        names[_key(record)] = (
            alternative.kind,
            alternative.sites,
            choice.passes,
            choice.opcode,
            choice.rule,
            len(choice.instructions),
        )
    return names


def _recaptured(
    alternatives: Alternatives, arrays: Sequence[Any]
) -> dict[tuple[object, ...], ChoiceError]:
    """Errors of the choices that the passes propose in the upcast module, by key."""
    if not alternatives._pipelines:  # of Alternatives.from_module
        return {}
    wide = upcast_to_float64(HloModule._wrap(alternatives._capture.module()))
    specs = [to_core(each, wide) for each in alternatives._pipelines]
    try:
        capture = core.capture(wide._core, specs)
    except PassError:
        return {}
    records = [
        ChoiceError(*record)
        for record in core.verify_alternatives(
            capture, as_bytes(arrays, wide.input_specs())
        )
    ]
    names = _names_of(Alternatives(capture), records)
    by_name = {names[_key(record)]: record for record in records}
    # Choices with equal keys are ambiguous.
    counts = Counter(names.values())
    return {name: record for name, record in by_name.items() if counts[name] == 1}


def _compare_modules(
    alternatives: Alternatives, record: ChoiceError, arrays: Sequence[Any]
) -> ChoiceError:
    """Compares the outputs of the module that one choice gives with the original's."""
    decisions = alternatives.reject_all()
    original = evaluate(upcast_to_float64(alternatives.apply(decisions)), *arrays)
    decisions[record.alternative] = record.choice
    decided = evaluate(upcast_to_float64(alternatives.apply(decisions)), *arrays)
    absolute = relative = 0.0
    num_nans_lost = num_compared = 0
    for want, got in zip(original, decided, strict=True):
        if not want.size:
            continue
        is_lost = np.isnan(want) & ~np.isnan(got)
        num_nans_lost += int(is_lost.sum())
        num_compared += int((~np.isnan(want)).sum())
        is_same = (want == got) | np.isnan(want)
        with np.errstate(invalid="ignore"):
            apart = np.where(is_same, 0.0, np.abs(_wide(want) - _wide(got)))
        worst = float(np.nan_to_num(apart, nan=np.inf).max())
        size = np.abs(_wide(want)[np.isfinite(want)]).max(initial=0)
        absolute = max(absolute, worst)
        if worst:
            tiny = np.finfo(np.float64).tiny
            relative = max(relative, worst / max(float(size), tiny))
    return ChoiceError(
        *(record.alternative, record.choice, absolute, relative, 1),
        *(num_nans_lost, num_compared),
    )


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def measure_rounding(
    alternatives: Alternatives,
    indices: Sequence[int],
    inputs: Sequence[Any],
    *,
    num_runs: int,
) -> list[tuple[float, float]]:
    """Changes of the originals when every rounding is perturbed by 1 ulp.

    Args:
        alternatives: the result of a capture.
        indices: of the alternatives to measure.
        inputs: one array for each input of the module.
        num_runs: perturbed runs; the largest change counts.

    Returns:
        For each index the largest |difference|, and that over the largest |value|, as
        in `ChoiceError`; inf if the number of evaluations is sensitive to 1 ulp.

    Raises:
        ArgumentError: the inputs do not match the module.
        ExecuteError: the evaluator does not support an instruction.
    """
    module = HloModule._wrap(alternatives._capture.module())
    moves: list[tuple[float, float]] = core.measure_rounding(
        alternatives.module._core,
        as_bytes(inputs, module.input_specs()),
        list(indices),
        num_runs,
    )
    return moves
