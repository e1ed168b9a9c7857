# SPDX-License-Identifier: Apache-2.0
"""Laws 4 and 5: decided modules compute what the original computes.

Everything runs in XLA's evaluator, which repeats and undoes nothing. A difference that
rounding does not explain is looked at again in float64, where it has to vanish.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ..interpreter import interpret, verify_alternatives
from ..module import HloModule
from ..passes import Pipeline, pass_names
from ..rewrite import Alternatives, capture
from ..widen import widened
from .children import note
from .laws import Report, random_decisions

Array = npt.NDArray[Any]

# Passes that drop roundings to narrower types on purpose: values may change by
# as much as the narrowest type of the module rounds.
_PRECISION_PASSES = {"simplify-fp-conversions"}

# Modules whose outputs may differ from run to run.
_STATEFUL = ("rng", "infeed")

# Relative tolerance by the output's element type; others have to be equal.
_TOLERANCE = {
    "bf16": 4e-2,
    "f16": 4e-3,
    "f32": 2e-5,
    "c64": 2e-5,
    "f64": 1e-11,
    "c128": 1e-11,
}
_SMALL_FLOAT_TOLERANCE = 0.25  # the 8- and 4-bit types


def random_inputs(module: HloModule, seed: int) -> list[Array]:
    """Seeded inputs: small integers, normal floats, fair coins."""
    rng = np.random.default_rng(seed)
    arrays = []
    for spec in module.input_specs():
        dtype = spec.dtype
        if dtype.kind in "iu":
            arrays.append(rng.integers(0, 5, spec.shape).astype(dtype))
        elif dtype.kind == "b":
            arrays.append(rng.integers(0, 2, spec.shape).astype(dtype))
        elif dtype.kind == "c":
            pair = rng.standard_normal((2, *spec.shape))
            arrays.append((pair[0] + 1j * pair[1]).astype(dtype))
        else:
            arrays.append(rng.standard_normal(spec.shape).astype(dtype))
    return [np.asarray(array) for array in arrays]


def nudged(arrays: Sequence[Array], seed: int) -> list[Array]:
    """The arrays with each float moved by one ulp, up or down."""
    rng = np.random.default_rng(seed)
    result = []
    for array in arrays:
        if array.dtype.kind == "c":
            parts = nudged([array.real.copy(), array.imag.copy()], seed)
            result.append((parts[0] + 1j * parts[1]).astype(array.dtype))
        elif array.dtype.kind == "f":
            toward = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf)
            result.append(np.asarray(np.nextafter(array, toward.astype(array.dtype))))
        else:
            result.append(array)
    return result


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    # Not float64 for integers: large ones would look equal.
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.float64)


def _distance(a: Array, b: Array) -> Array:
    """|a - b| by element; 0 where both are the same NaN or infinity."""
    wide_a, wide_b = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        same = (wide_a == wide_b) | ((wide_a != wide_a) & (wide_b != wide_b))
        if wide_a.dtype.kind in "biu":
            return np.where(same, 0.0, 1.0)
        distance = np.abs(wide_a - wide_b)
        distance = np.where(np.isnan(distance), np.inf, distance)
        return np.where(same, 0.0, distance)


@dataclass(frozen=True)
class Expected:
    """Outputs of a module on some inputs, and how much of a difference is rounding."""

    inputs: list[Array]
    outputs: list[Array]
    tolerances: list[float]
    narrow_tolerances: list[float]  # as wide as the narrowest float type allows

    @classmethod
    def of(cls, module: HloModule, seed: int) -> Expected:
        """Runs `module` on seeded inputs, and on inputs an ulp away."""
        inputs = random_inputs(module, seed)
        outputs = interpret(module, *inputs)
        sensitivity = [0.0] * len(outputs)
        for other in (1, 2):
            moved = interpret(module, *nudged(inputs, seed + other))
            for i, (a, b) in enumerate(zip(outputs, moved, strict=True)):
                worst = _distance(a, b)
                sensitivity[i] = max(sensitivity[i], float(worst.max(initial=0)))
        tolerances, narrow_tolerances = [], []
        text = module.to_text()
        narrowest = max(
            [value for dtype, value in _TOLERANCE.items() if f" {dtype}[" in text]
            + [_SMALL_FLOAT_TOLERANCE] * (" f8e" in text),
            default=0.0,
        )
        specs = module.output_specs()
        for array, spec, ulp in zip(outputs, specs, sensitivity, strict=True):
            default = _SMALL_FLOAT_TOLERANCE if spec.hlo_dtype[:2] == "f8" else 0.0
            relative = _TOLERANCE.get(spec.hlo_dtype, default)
            wide = np.abs(_wide(array))
            wide = wide[np.isfinite(wide)]
            scale = float(wide.max(initial=0)) if relative else 0.0
            tolerances.append(relative * scale + 64 * ulp)
            narrow_tolerances.append(max(tolerances[-1], narrowest * scale))
        return cls(inputs, outputs, tolerances, narrow_tolerances)

    def differences(
        self, outputs: Sequence[Array], *, narrow: bool = False
    ) -> Iterator[str]:
        """One line for each output that is further off than rounding explains."""
        tolerances = self.narrow_tolerances if narrow else self.tolerances
        for i, (want, got) in enumerate(zip(self.outputs, outputs, strict=True)):
            if want.shape != got.shape or want.dtype != got.dtype:
                yield f"output {i} is {got.dtype}{got.shape}"
                continue
            worst = float(_distance(want, got).max(initial=0))
            if worst > tolerances[i]:
                yield (
                    f"output {i} is off by {worst:.3g}, and {tolerances[i]:.3g} is "
                    "rounding"
                )


def is_stateful(module: HloModule) -> bool:
    """Whether outputs depend on more than the inputs."""
    return any(opcode in module.opcode_counts() for opcode in _STATEFUL)


def _holds_in_float64(
    module: HloModule,
    pipelines: Sequence[Pipeline],
    alternatives: Alternatives,
    decisions: npt.NDArray[np.int64],
    seed: int,
) -> bool:
    """Whether the same decisions change nothing where rounding is no excuse."""
    try:
        wide = widened(module)
        again = capture(wide, pipelines)
        if not np.array_equal(again.num_choices, alternatives.num_choices):
            return False
        outputs = interpret(again.apply(decisions), *random_inputs(wide, seed))
        return not list(Expected.of(wide, seed).differences(outputs))
    except errors.HloEnvError:
        return False


def _equal_in_float64(
    alternatives: Alternatives, inputs: list[Array]
) -> set[tuple[int, int]]:
    """(alternative, choice) of the choices that only round differently."""
    note("verify in float64")
    try:
        records = verify_alternatives(alternatives, inputs, float64=True)
    except errors.HloEnvError:
        return set()
    return {(r.alternative, r.choice) for r in records if r.relative < 1e-6}


def check_capture(
    module: HloModule,
    pipelines: Sequence[Pipeline],
    expected: Expected,
    *,
    rng: random.Random,
    num_decisions: int,
    seed: int,
) -> Report:
    """Checks one joint capture.

    Args:
        module: what is captured.
        pipelines: by what.
        expected: of `module`.
        rng: draws the decisions.
        num_decisions: how many random vectors, beside those of each pipeline.
        seed: of the inputs of `expected`.
    """
    passes = ",".join(each.name for each in pipelines)
    try:
        alternatives = capture(module, pipelines)
    except errors.PassError as error:
        return Report(passes, 0, (), skipped=str(error))
    if not len(alternatives):
        return Report(passes, 0, ())
    vectors = [alternatives.decisions_for(each.name) for each in pipelines]
    vectors += [random_decisions(alternatives, rng) for _ in range(num_decisions)]
    return check_decisions(alternatives, module, pipelines, expected, vectors, seed)


def check_decisions(
    alternatives: Alternatives,
    module: HloModule,
    pipelines: Sequence[Pipeline],
    expected: Expected,
    vectors: Sequence[npt.NDArray[np.int64]],
    seed: int,
) -> Report:
    """Law 4 for the given decisions, law 5 for every choice."""
    passes = ",".join(each.name for each in pipelines)
    violations: list[str] = []
    skipped = ""
    narrow = not _PRECISION_PASSES.isdisjoint(pass_names(pipelines))
    for decisions in vectors:
        note(f"evaluate {passes} {decisions.tolist()}")
        decided = alternatives.apply(decisions)
        try:
            outputs = interpret(decided, *expected.inputs)
        except errors.ExecuteError as error:
            skipped = str(error)
            continue
        lines = list(expected.differences(outputs, narrow=narrow))
        if lines and _holds_in_float64(
            module, pipelines, alternatives, decisions, seed
        ):
            continue
        violations += [f"law 4: {decisions.tolist()}: {line}" for line in lines]
    note(f"verify {passes}")
    try:
        records = verify_alternatives(alternatives, expected.inputs)
    except errors.ExecuteError as error:
        skipped = str(error)
        records = []
    wanted = [
        (a, c) for a, n in enumerate(alternatives.num_choices) for c in range(1, n)
    ]
    if records and [(r.alternative, r.choice) for r in records] != wanted:
        violations.append("law 5: there is not one record for each choice")
    # A cancellation inside may lose more digits than the outputs do.
    limit = _SMALL_FLOAT_TOLERANCE if narrow else 1e-2
    far = [r for r in records if r.relative > limit and r.absolute > 1e-4]
    exact = _equal_in_float64(alternatives, expected.inputs) if far else set()
    for record in far:
        if (record.alternative, record.choice) not in exact:
            violations.append(
                f"law 5: choice {record.choice} of "
                f"{alternatives[record.alternative]!r} is off by {record.absolute:.3g} "
                f"(relative {record.relative:.3g})"
            )
    return Report(passes, len(alternatives), tuple(violations), skipped=skipped)
