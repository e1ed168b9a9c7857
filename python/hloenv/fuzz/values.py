# SPDX-License-Identifier: Apache-2.0
"""Laws 4 and 5: decided modules compute what the original computes.

Everything runs in XLA's evaluator, which repeats and undoes nothing. How much rounding
explains is measured: the original runs again with every rounding off by one unit in the
last place. A difference beyond that is looked at again in float64, where it has to
vanish.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ..interpreter import (
    ChoiceError,
    interpret,
    measure_rounding,
    verify_alternatives,
)
from ..module import HloModule
from ..passes import Pipeline, run_passes
from ..rewrite import Alternatives, capture
from ..widen import widened
from .children import note
from .laws import Report, is_candidate, random_decisions

Array = npt.NDArray[Any]

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

# How often all roundings of a module are perturbed by one unit in the last place:
# always, and again where an output differs by more than those few runs did.
_FEW_RUNS = 2
_MANY_RUNS = 16
# How many times as far off as the worst of these runs an output may be. One that they
# move by so much that this allows anything says nothing: it hangs on the last bit.
_MARGIN = 16


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
        elif array.dtype.name.startswith(("float", "bfloat")):
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


def _worst(a: Array, b: Array) -> float:
    return float(_distance(a, b).max(initial=0))


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
class Verdict:
    """What a comparison of outputs found.

    Attributes:
        lines: one for each output that is further off than rounding explains.
        num_lost: outputs that differ, but of which rounding leaves nothing to compare.
    """

    lines: tuple[str, ...] = ()
    num_lost: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether all outputs are equal but for rounding."""
        return not self.lines and not self.num_lost


class Expected:
    """Outputs of a module on seeded inputs, and how much of a difference is rounding.

    Attributes:
        inputs: of the module.
        outputs: for them.
    """

    def __init__(self, module: HloModule, seed: int) -> None:
        self.inputs = random_inputs(module, seed)
        self.outputs = interpret(module, *self.inputs)
        self._module = module
        self._relative = [
            _TOLERANCE.get(dtype, _SMALL_FLOAT_TOLERANCE * (dtype[:2] in ("f8", "f4")))
            for dtype in (spec.hlo_dtype for spec in module.output_specs())
        ]
        self._moved = [0.0] * len(self.outputs)
        self._num_runs = 0
        self._perturb(_FEW_RUNS)

    def compare(self, outputs: Sequence[Array]) -> Verdict:
        """Compares what another module gave on the same inputs."""
        verdict = self._compare(outputs)
        if verdict.is_clear or self._num_runs == _MANY_RUNS:
            return verdict
        self._perturb(_MANY_RUNS)
        return self._compare(outputs)

    def _perturb(self, num_runs: int) -> None:
        while self._num_runs < num_runs:
            self._num_runs += 1
            inputs = nudged(self.inputs, self._num_runs)
            moved = interpret(self._module, *inputs, perturb=self._num_runs)
            for i, (a, b) in enumerate(zip(self.outputs, moved, strict=True)):
                self._moved[i] = max(self._moved[i], _worst(a, b))

    def _compare(self, outputs: Sequence[Array]) -> Verdict:
        lines: list[str] = []
        num_lost = 0
        for i, (want, got) in enumerate(zip(self.outputs, outputs, strict=True)):
            if want.shape != got.shape or want.dtype != got.dtype:
                lines.append(f"output {i} is {got.dtype}{got.shape}")
                continue
            magnitudes = np.abs(_wide(want)) if self._relative[i] else np.zeros(1)
            scale = float(magnitudes[np.isfinite(magnitudes)].max(initial=0))
            rounding = _MARGIN * self._moved[i]
            tolerance = self._relative[i] * scale + rounding
            worst = _worst(want, got)
            if worst <= tolerance:
                continue
            if rounding >= max(scale, np.finfo(np.float64).tiny):
                num_lost += 1
                continue
            lines.append(
                f"output {i} is off by {worst:.3g}, and {tolerance:.3g} is rounding"
            )
        return Verdict(tuple(lines), num_lost)


def is_stateful(module: HloModule) -> bool:
    """Whether outputs depend on more than the inputs."""
    return any(opcode in module.opcode_counts() for opcode in _STATEFUL)


class _InFloat64:
    """The same decisions where rounding is hardly an excuse."""

    def __init__(
        self,
        module: HloModule,
        pipelines: Sequence[Pipeline],
        alternatives: Alternatives,
        seed: int,
    ) -> None:
        wide = widened(module)
        self._alternatives = capture(wide, pipelines)
        if not np.array_equal(self._alternatives.num_choices, alternatives.num_choices):
            raise errors.ArgumentError("the passes find other rewrites in float64")
        self._expected = Expected(wide, seed)

    def compare(self, decisions: npt.NDArray[np.int64]) -> Verdict:
        decided = self._alternatives.apply(decisions)
        return self._expected.compare(interpret(decided, *self._expected.inputs))


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


def _beyond_rounding(
    alternatives: Alternatives, far: Sequence[ChoiceError], inputs: list[Array]
) -> list[ChoiceError]:
    """Those of `far` that differ more than their originals move with roundings."""
    if not far:
        return []
    note("verify with perturbed roundings")
    indices = sorted({record.alternative for record in far})
    try:
        moved = measure_rounding(alternatives, indices, inputs, num_runs=_MANY_RUNS)
    except errors.ExecuteError:
        return list(far)
    allowed = {
        index: _MARGIN * relative
        for index, (_, relative) in zip(indices, moved, strict=True)
    }
    return [
        record
        for record in far
        if record.relative > (limit := allowed[record.alternative]) and limit < 1
    ]


def _moves_layouts(
    module: HloModule, pipelines: Sequence[Pipeline], expected: Expected
) -> bool:
    """Whether XLA itself gets values wrong by not looking at layouts.

    A pass that XLA runs before layout assignment only takes copies to other layouts
    away, also those that bitcasts need. So does algsimp after reshape-decomposer, which
    made the bitcasts, in one pipeline. The laws hold all the same: what the pass gives
    natively is what its decisions give.
    """
    for each in pipelines:
        if is_candidate(each):
            continue
        try:
            native = run_passes(module, each).module
            if "bitcast" not in native.opcode_counts():
                continue
            outputs = interpret(native, *expected.inputs)
        except errors.HloEnvError:
            continue
        if expected.compare(outputs).lines:
            return True
    return False


def _in_both(
    verdict: Verdict, wide: _InFloat64, decisions: npt.NDArray[np.int64]
) -> Verdict:
    """The verdict after a second look in float64."""
    note("evaluate in float64")
    try:
        second = wide.compare(decisions)
    except errors.HloEnvError:
        return verdict
    if not second.lines:
        return second
    return Verdict(verdict.lines or tuple(f"in float64: {x}" for x in second.lines))


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

    @functools.cache
    def in_float64() -> _InFloat64 | None:
        try:
            return _InFloat64(module, pipelines, alternatives, seed)
        except errors.HloEnvError:
            return None

    for decisions in vectors:
        note(f"evaluate {passes} {decisions.tolist()}")
        decided = alternatives.apply(decisions)
        try:
            outputs = interpret(decided, *expected.inputs)
        except errors.ExecuteError as error:
            skipped = str(error)
            continue
        verdict = expected.compare(outputs)
        if verdict.is_clear:
            continue
        if (wide := in_float64()) is not None:
            verdict = _in_both(verdict, wide, decisions)
        violations += [f"law 4: {decisions.tolist()}: {line}" for line in verdict.lines]
        if verdict.num_lost:
            skipped = "outputs hang on the last bit"
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
    if violations:
        # XLA takes 0 * x for 0, also where x is infinite; no more than that may be
        # behind it where no output shows it.
        violations += [
            f"law 5: choice {r.choice} of {alternatives[r.alternative]!r} has numbers "
            f"for {r.num_nans_lost} NaNs"
            for r in records
            if r.num_nans_lost
        ]
    # A cancellation inside may lose more digits than the outputs do.
    far = [r for r in records if r.relative > 1e-2 and r.absolute > 1e-4]
    if far:
        exact = _equal_in_float64(alternatives, expected.inputs)
        far = [r for r in far if (r.alternative, r.choice) not in exact]
    for record in _beyond_rounding(alternatives, far, expected.inputs):
        violations.append(
            f"law 5: choice {record.choice} of {alternatives[record.alternative]!r} "
            f"is off by {record.absolute:.3g} (relative {record.relative:.3g})"
        )
    if violations and _moves_layouts(module, pipelines, expected):
        violations = []
        skipped = "a native run takes layouts from under bitcasts"
    return Report(passes, len(alternatives), tuple(violations), skipped=skipped)
