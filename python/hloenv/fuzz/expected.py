# SPDX-License-Identifier: Apache-2.0
"""Outputs of the original module on seeded inputs, and their rounding tolerances.

Tolerances come from runs of the original with every rounding perturbed by one ulp, and
from runs in float64, where equivalent programs agree far better.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .. import errors
from .._typing import Array
from ..hlo.module import HloModule
from ..process.forkserver import note
from ..runtime.interpreter import evaluate
from ..runtime.upcast import upcast_inputs, upcast_to_float64
from .comparison import MARGIN, Verdict, compare, nudged, tolerance_of, worst
from .examples import Example, Range, find_example

# Number of runs with all roundings perturbed by one ulp: always, and when an output
# differs by more than the few runs explain.
FEW_RUNS = 2
MANY_RUNS = 16

# Equivalent programs agree to about 1e-14 in float64, except that constants folded by a
# pass keep the rounding of the module's type.
FLOAT64_TOLERANCE = 1e-6


class Expected:
    """Outputs of a module on seeded inputs, and their rounding tolerances.

    Attributes:
        inputs: of the module; of the kind that gives the fewest NaN.
        outputs: for them.
        example: inputs and outputs with their kind.
    """

    def __init__(
        self, module: HloModule, seed: int, ranges: Sequence[Range] = ()
    ) -> None:
        """Runs the module.

        Args:
            module: the original.
            seed: seed of its inputs.
            ranges: ranges of its integer inputs, see `find_example`.

        Raises:
            ExecuteError: the evaluator does not support an instruction.
        """
        if any(spec.hlo_dtype == "token" for spec in module.input_specs()):
            raise errors.ExecuteError("the module takes a token")
        self.example: Example = find_example(
            module, lambda inputs: evaluate(module, *inputs), seed, ranges
        )
        self.inputs = self.example.inputs
        self.outputs = self.example.outputs
        self._module = module
        self._relative = [tolerance_of(s.hlo_dtype) for s in module.output_specs()]
        self._moved = [0.0] * len(self.outputs)
        self._num_runs = 0
        self._perturb(FEW_RUNS)

    def compare(self, outputs: Sequence[Array]) -> Verdict:
        """Compares the outputs of another module on the same inputs."""
        verdict = compare(self.outputs, outputs, self._relative, self._moved)
        if verdict.is_clear or self._num_runs == MANY_RUNS:
            return verdict
        self._perturb(MANY_RUNS)
        return compare(self.outputs, outputs, self._relative, self._moved)

    def _perturb(self, num_runs: int) -> None:
        while self._num_runs < num_runs:
            self._num_runs += 1
            inputs = nudged(self.inputs, self._num_runs)
            moved = evaluate(self._module, *inputs, perturb=self._num_runs)
            for i, (a, b) in enumerate(zip(self.outputs, moved, strict=True)):
                self._moved[i] = max(self._moved[i], worst(a, b))

    @functools.cached_property
    def in_float64(self) -> ExpectedInFloat64 | None:
        """Returns the outputs in float64; None if the module cannot be upcast."""
        note("expected in float64")
        try:
            return ExpectedInFloat64(self._module, self.inputs)
        except errors.HloEnvError:
            return None


class ExpectedInFloat64:
    """Outputs of a module upcast to float64.

    The remaining difference is the rounding of constants that a pass folded. It is
    bounded by moving the inputs by one ulp of their original type.
    """

    def __init__(self, module: HloModule, inputs: Sequence[Array]) -> None:
        """Runs the module.

        Args:
            module: the original.
            inputs: its inputs, in its own types.

        Raises:
            ArgumentError: it cannot be upcast.
            ExecuteError: the evaluator does not support an instruction.
        """
        original = upcast_to_float64(module)
        self._inputs = upcast_inputs(original, inputs)
        self._outputs = evaluate(original, *self._inputs)
        self._relative = [
            FLOAT64_TOLERANCE if tolerance_of(spec.hlo_dtype) else 0.0
            for spec in original.output_specs()
        ]
        self._moved = [0.0] * len(self._outputs)
        for run in range(FEW_RUNS):
            moved = evaluate(original, *upcast_inputs(original, nudged(inputs, run)))
            for i, (a, b) in enumerate(zip(self._outputs, moved, strict=True)):
                self._moved[i] = max(self._moved[i], worst(a, b) / MARGIN)

    def compare(self, decided: HloModule) -> Verdict:
        """Upcasts a decided module and compares its outputs.

        Raises:
            ArgumentError: it cannot be upcast.
            ExecuteError: the evaluator does not support an instruction.
        """
        outputs = evaluate(upcast_to_float64(decided), *self._inputs)
        return compare(self._outputs, outputs, self._relative, self._moved)
