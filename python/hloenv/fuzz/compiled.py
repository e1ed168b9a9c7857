# SPDX-License-Identifier: Apache-2.0
"""Invariant 4 in compiled form: decided modules compiled by XLA's backend.

The original and the decided module go through the rest of XLA's pipeline and its
backend, and run on the same inputs. This finds correct rewrites that a later pass or
the backend miscompiles, which XLA's evaluator cannot find. XLA may crash the process.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from .._typing import Int64Array
from ..hlo.module import HloModule, identity
from ..process.forkserver import note
from ..rewrite.alternatives import Alternatives
from ..runtime.compare import OutputComparison, compare_outputs
from ..runtime.executable import Executable, compile
from ..runtime.random_inputs import perturbed
from ..runtime.upcast import upcast_inputs, upcast_to_float64
from .comparison import MARGIN, has_numbers, num_partly_nan, wide, worst
from .examples import Range, find_example
from .expected import FLOAT64_TOLERANCE, MANY_RUNS
from .invariants import Report

Decisions = Int64Array

_NUM_PERTURBATIONS = 4


class CompiledExpected:
    """A compiled module, its outputs on seeded inputs, and their rounding tolerances.

    Attributes:
        example: the inputs and the outputs.
    """

    def __init__(
        self,
        module: HloModule,
        seed: int,
        ranges: Sequence[Range] = (),
        *,
        isolate: bool = False,
    ) -> None:
        """Compiles and runs the module.

        Args:
            module: the original, at the position where it is decided.
            seed: seed of its inputs.
            ranges: ranges of its integer inputs, see `find_example`.
            isolate: whether it is compiled in a child process first, see `compile`.

        Raises:
            CompileError: XLA rejects the module, or crashes on it.
            ExecuteError: it takes a token, or fails when it runs.
        """
        if any(
            spec.hlo_dtype == "token"
            for spec in (*module.input_specs(), *module.output_specs())
        ):
            raise errors.ExecuteError("the module takes or gives a token")
        note("expected compile")
        self._module = module
        self._executable = _compiled(module, isolate=isolate)
        note("expected run")
        self.example = find_example(module, self._run, seed, ranges)
        # Keyed by identity: passes often return the same module.
        self._outputs: dict[str, list[Any]] = {}
        self._moved = [
            self._run(perturbed(self.example.inputs, seed=each))
            for each in range(_NUM_PERTURBATIONS)
        ]

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self._executable(*inputs))

    @property
    def num_nan_outputs(self) -> int:
        """Number of outputs without any finite element."""
        return sum(not has_numbers(output) for output in self.example.outputs)

    def compare(self, decided: HloModule) -> OutputComparison:
        """Compiles, runs and compares a decided module.

        Raises:
            HloEnvError: XLA rejects it, or it fails when it runs.
        """
        return self._compare(self._outputs_of(decided), set())

    def compare_insensitive(self, decided: HloModule) -> tuple[OutputComparison, int]:
        """Compares without the outputs that one ulp of the inputs moves by their size.

        Returns:
            The comparison, and how many outputs were left out.

        Raises:
            HloEnvError: as of `compare`.
        """
        left_out = self._sensitive
        return self._compare(self._outputs_of(decided), left_out), len(left_out)

    def _outputs_of(self, decided: HloModule) -> list[Any]:
        key = identity(decided)
        if key not in self._outputs:
            executable = _compiled(decided)
            note(f"run decided {decided.name}")
            self._outputs[key] = list(executable(*self.example.inputs))
        return self._outputs[key]

    def _compare(self, outputs: list[Any], left_out: set[int]) -> OutputComparison:
        kept = [
            i
            for i, each in enumerate(self.example.outputs)
            if i not in left_out and has_numbers(each)
        ]
        return compare_outputs(
            [self.example.outputs[i] for i in kept],
            [outputs[i] for i in kept],
            also=[[moved[i] for i in kept] for moved in self._moved],
        )

    @functools.cached_property
    def _sensitive(self) -> set[int]:
        """Outputs that one ulp of the inputs moves by their size, or to NaN."""
        runs = [
            *self._moved,
            *(
                self._run(perturbed(self.example.inputs, seed=each))
                for each in range(_NUM_PERTURBATIONS, MANY_RUNS)
            ),
        ]
        found = set()
        for i, output in enumerate(self.example.outputs):
            sizes = np.abs(wide(output))
            size = float(sizes[np.isfinite(sizes)].max(initial=0))
            moved = max(worst(output, run[i]) for run in runs)
            if MARGIN * moved >= max(size, np.finfo(np.float64).tiny):
                found.add(i)
        return found

    def compare_in_float64(self, decided: HloModule) -> OutputComparison | None:
        """Compares both modules upcast to float64; None if they cannot be upcast."""
        if self._in_float64 is None:
            return None
        inputs, outputs, moved = self._in_float64
        try:
            executable = _compiled(upcast_to_float64(decided))
            note(f"run decided in float64 {decided.name}")
            found = list(executable(*inputs))
        except errors.HloEnvError:
            return None
        return compare_outputs(outputs, found, rtol=FLOAT64_TOLERANCE, also=moved)

    @functools.cached_property
    def _in_float64(self) -> tuple[list[Any], list[Any], list[list[Any]]] | None:
        """Returns inputs, outputs, and outputs on inputs moved by one ulp."""
        note("expected in float64")
        try:
            module = upcast_to_float64(self._module)
            executable = _compiled(module)
        except errors.HloEnvError:
            return None
        inputs = upcast_inputs(module, self.example.inputs)
        moved = upcast_inputs(module, perturbed(self.example.inputs))
        # compare_outputs multiplies this by ten.
        outputs: list[Any] = list(executable(*inputs))
        near: list[Any] = [
            want + (got - want) / 10 if want.dtype.kind in "fc" else got
            for want, got in zip(outputs, executable(*moved), strict=True)
        ]
        return inputs, outputs, [near]


def _compiled(module: HloModule, *, isolate: bool = False) -> Executable:
    return compile(module, isolate=isolate)


def check_compiled(
    alternatives: Alternatives,
    expected: CompiledExpected,
    vectors: Sequence[Decisions],
) -> Report:
    """Compares decided modules with the original in compiled form."""
    violations: list[str] = []
    skipped: Counter[str] = Counter()
    passes = ",".join(alternatives.pass_names)
    num_checks = 0
    for decisions in vectors:
        note(f"compile decided {passes} {decisions.tolist()}")
        decided = alternatives.apply(decisions)
        try:
            comparison, num_sensitive = expected.compare(decided), 0
            if not comparison.is_equal:
                comparison, num_sensitive = _second_look(expected, decided, comparison)
        except (errors.CompileError, errors.PositionError) as error:
            skipped[f"decided module does not compile: {_kind_of(error)}"] += 1
            continue
        num_compared = len(expected.example.outputs) - expected.num_nan_outputs
        num_checks += max(0, num_compared - num_sensitive)
        if num_sensitive:
            skipped["not compared: an output is sensitive to 1 ulp"] += num_sensitive
        if not comparison.is_equal:
            violations.append(
                f"invariant 4, compiled: {decisions.tolist()}: {comparison}"
            )
    if num_nan := num_partly_nan(expected.example.outputs):
        skipped["not compared: elements of an output are NaN in the original"] += (
            num_nan
        )
    if expected.num_nan_outputs:
        skipped["not compared: an output is NaN everywhere"] += expected.num_nan_outputs
    return Report(
        passes,
        len(alternatives),
        tuple(violations),
        tuple(skipped.elements()),
        num_checks,
    )


def _second_look(
    expected: CompiledExpected, decided: HloModule, first: OutputComparison
) -> tuple[OutputComparison, int]:
    """Compares in float64, or else without the outputs that are sensitive to 1 ulp.

    Returns:
        The comparison, and how many outputs it leaves out.
    """
    note(f"compile in float64 {decided.name}")
    # Where only the decided module lost its numbers, float64 may have them.
    if np.isfinite(first.error):
        second = expected.compare_in_float64(decided)
        if second is not None:
            return second, 0
    return expected.compare_insensitive(decided)


def _kind_of(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
