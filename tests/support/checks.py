# SPDX-License-Identifier: Apache-2.0
"""The laws of rewriting, checked on one module.

The functions here run in child processes (see `children`): arguments and results are
plain values. Passes are given as names; several joined by "," are captured jointly.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hloenv import errors
from hloenv._native import core
from hloenv.interpreter import interpret, verify_alternatives
from hloenv.module import HloModule
from hloenv.rewrite import Alternatives
from hloenv.widen import widened

from .hlo_gen import random_module

Array = npt.NDArray[Any]

# How a module is prepared before its laws are checked. JAX hides most work in calls.
VARIANTS: dict[str, tuple[str, ...]] = {
    "raw": (),
    "inlined": ("call-inliner", "dce"),
    "flattened": ("flatten-call-graph",),
}

# Opcodes that happen even if nothing reads them.
_EFFECTS = ("rng", "infeed", "outfeed", "send", "recv", "all-reduce")
_EFFECTFUL_CALL = "custom_call_has_side_effect=true"

# Passes that drop roundings to narrower types on purpose: values may change by
# as much as the narrowest type of the module rounds.
_PRECISION_PASSES = {"simplify-fp-conversions"}

# Passes that say that they changed nothing although they gave each all-reduce its
# own copy of a shared reducer.
_UNTRUE_PASSES = {"bf16-mixed-precision-removal", "float-normalization-bf16"}

# Passes that draw fresh random seeds each time they run: two runs give different
# constants, so nothing that compares two runs can hold.
_UNREPEATABLE_PASSES = {"rng-expander"}

# Modules whose outputs may differ from run to run.
_STATEFUL = ("rng", "infeed")


@dataclass(frozen=True)
class Report:
    """What one check of one capture found.

    Attributes:
        passes: names joined by ",".
        num_alternatives: of the capture.
        violations: "law N: ..." each; empty when all is well.
        skipped: why a check was left out, or "".
        whole: passes that are taken or left as a whole, with the reason.
    """

    passes: str
    num_alternatives: int
    violations: tuple[str, ...]
    skipped: str = ""
    whole: tuple[tuple[str, str], ...] = ()


def all_passes() -> list[str]:
    """Names of every registered pass."""
    return list(core.list_passes())


def load(source: str, variant: str = "raw") -> HloModule:
    """A module from a path, from text, or from "seed:N", prepared as `variant`."""
    if source.startswith("seed:"):
        module = HloModule.from_text(random_module(int(source[5:])))
    elif "\n" in source:
        module = HloModule.from_text(source)
    else:
        module = HloModule.from_text(Path(source).read_text())
    for name in VARIANTS[variant]:
        result, _, _ = core.run_passes(module._core, _spec(name))
        module = HloModule._wrap(result)
    return module


@functools.cache
def _spec(name: str) -> core.PipelineSpec:
    return core.PipelineSpec(name, [(name, {})])


@functools.cache
def _is_candidate(name: str) -> bool:
    return bool(core.describe_pass(name)["candidate"])


def capture(module: HloModule, passes: str) -> Alternatives:
    """A dry run of the passes, named as in `Report`."""
    return Alternatives(
        core.capture(module._core, [_spec(name) for name in passes.split(",")])
    )


def random_decisions(
    alternatives: Alternatives, rng: random.Random
) -> npt.NDArray[np.int64]:
    """[A] decisions, each choice as likely as any other."""
    return np.array([rng.randrange(int(n)) for n in alternatives.num_choices], np.int64)


def check_structure(
    source: str, variant: str, passes: Sequence[str], *, seed: int = 0
) -> Iterator[Report]:
    """Laws 1, 2, 3, 6 and 7, and the verifier's part of law 4, for each of `passes`.

    A pass that cannot run on this module is reported as skipped, with its error.
    """
    try:
        module = load(source, variant)
    except errors.PassError as error:
        for each in passes:
            yield Report(each, 0, (), skipped=str(error))
        return
    checker = _StructureChecker(module, seed)
    for each in passes:
        yield checker.check(each)


class _StructureChecker:
    """Checks captures of one module; runs each pass natively once."""

    def __init__(self, module: HloModule, seed: int) -> None:
        self.module = module
        self.text = module.to_text()
        self.fingerprint = module.fingerprint()
        self.seed = seed
        self.natives: dict[str, tuple[HloModule, bool]] = {}

    def native(self, name: str) -> tuple[HloModule, bool]:
        """The module after a native run of the pass, and what the pass returned."""
        if name not in self.natives:
            result, changed, _ = core.run_passes(self.module._core, _spec(name))
            self.natives[name] = (HloModule._wrap(result), changed)
        return self.natives[name]

    def check(self, passes: str) -> Report:
        names = passes.split(",")
        try:
            for name in names:
                if not _is_candidate(name):
                    self.native(name)
        except errors.PassError as error:
            return self._check_failing(passes, str(error))
        try:
            alternatives = capture(self.module, passes)
        except errors.PassError as error:
            # What every pass that could run natively did has to work in a capture.
            if not all(map(_is_candidate, names)):
                return Report(passes, 0, (f"the capture fails: {error}",))
            return Report(passes, 0, (), skipped=str(error))
        violations: list[str] = []
        violations += self._check_unchanged()
        violations += self._check_same_again(alternatives, passes)
        violations += self._check_decisions(alternatives, names)
        violations += self._check_honesty(alternatives, names)
        violations += self._check_graph(alternatives)
        violations += self._check_random(alternatives)
        return Report(
            passes,
            len(alternatives),
            tuple(violations),
            whole=tuple(sorted(alternatives.whole.items())),
        )

    def _check_failing(self, passes: str, reason: str) -> Report:
        """A pass that fails natively has to fail the same way in a capture."""
        try:
            capture(self.module, passes)
        except errors.PassError:
            return Report(passes, 0, tuple(self._check_unchanged()), skipped=reason)
        return Report(passes, 0, (f"capture works, but the pass fails: {reason}",))

    def _check_unchanged(self) -> Iterator[str]:
        if self.module.fingerprint() != self.fingerprint:
            yield "law 1: the capture changed the fingerprint of its module"
        if self.module.to_text() != self.text:
            yield "law 1: the capture changed the text of its module"

    def _check_same_again(
        self, alternatives: Alternatives, passes: str
    ) -> Iterator[str]:
        again = capture(self.module, passes)
        if again.num_choices.tolist() != alternatives.num_choices.tolist():
            yield "law 6: a second capture has other choices"
        elif again.module.to_text() != alternatives.module.to_text():
            yield "law 6: a second capture has another alternative graph"

    def _check_decisions(
        self, alternatives: Alternatives, names: list[str]
    ) -> Iterator[str]:
        rejected = alternatives.apply(alternatives.reject_all())
        if rejected.fingerprint() != self.fingerprint:
            yield "law 2: rejecting everything gives another module"
        for name in names:
            if _is_candidate(name):
                continue
            accepted = alternatives.apply(alternatives.decisions_for(name))
            native, _ = self.native(name)
            if name in _UNREPEATABLE_PASSES:
                continue
            if accepted.fingerprint() != native.fingerprint():
                yield (
                    f"law 3: decisions_for({name!r}) and the native run differ: "
                    + _difference(accepted, native)
                )

    def _check_honesty(
        self, alternatives: Alternatives, names: list[str]
    ) -> Iterator[str]:
        for name in names:
            if _is_candidate(name):
                continue
            native, changed = self.native(name)
            if name in _UNTRUE_PASSES:
                continue
            if not changed and native.fingerprint() != self.fingerprint:
                yield f"honesty: {name!r} says that it changed nothing, but it did"
            if not changed and alternatives.decisions_for(name).any():
                yield f"honesty: {name!r} changed nothing, but it has choices"

    def _check_graph(self, alternatives: Alternatives) -> Iterator[str]:
        for what, module in (("module", self.module), ("graph", alternatives.module)):
            again = HloModule.from_text(module.to_text())
            if again.fingerprint() != module.fingerprint():
                yield f"law 7: the {what}'s text gives another {what}"
        alternatives.module.verify()
        if len(alternatives) and int(alternatives.num_choices.min()) < 2:
            yield "an alternative has no choice beside the original"

    def _check_random(self, alternatives: Alternatives) -> Iterator[str]:
        if not len(alternatives):
            return
        rng = random.Random(self.seed)
        for _ in range(2):
            decisions = random_decisions(alternatives, rng)
            decided = alternatives.apply(decisions)
            try:
                decided.verify()
            except errors.InvalidModuleError as error:
                yield f"law 4: the verifier refuses {decisions.tolist()}: {error}"
                continue
            again = HloModule.from_text(decided.to_text())
            if again.fingerprint() != decided.fingerprint():
                yield f"law 7: the text of {decisions.tolist()} gives another module"
            yield from self._check_effects(alternatives, decided)
            yield from self._check_relevant(alternatives, decisions, decided, rng)

    def _check_effects(
        self, alternatives: Alternatives, decided: HloModule
    ) -> Iterator[str]:
        """Effects that no pass adds or removes happen as often as before."""
        modules = [self.module, *(native for native, _ in self.natives.values())]
        kept = _effects(alternatives.apply(alternatives.reject_all()))
        found = _effects(decided)
        for what, counts in _merged(map(_effects, modules)).items():
            if len(counts) == 1 and found[what] not in (*counts, kept[what]):
                yield f"law 4: {what}: {counts} became {found[what]}"

    def _check_relevant(
        self,
        alternatives: Alternatives,
        decisions: npt.NDArray[np.int64],
        decided: HloModule,
        rng: random.Random,
    ) -> Iterator[str]:
        """Another choice at an irrelevant alternative gives the same module."""
        relevant = alternatives.relevant(decisions)
        irrelevant = np.flatnonzero(~relevant)
        if not len(irrelevant):
            return
        other = decisions.copy()
        for position in irrelevant:
            other[position] = rng.randrange(int(alternatives.num_choices[position]))
        if alternatives.apply(other).fingerprint() != decided.fingerprint():
            yield (
                f"relevant: {irrelevant.tolist()} of {decisions.tolist()} are said not "
                f"to matter, but {other.tolist()} gives another module"
            )


def _effects(module: HloModule) -> dict[str, int]:
    """How often each kind of effect stands in a module."""
    counts = module.opcode_counts()
    effects = {opcode: counts.get(opcode, 0) for opcode in _EFFECTS}
    if "custom-call" in counts:
        effects[_EFFECTFUL_CALL] = module.to_text().count(_EFFECTFUL_CALL)
    return {_EFFECTFUL_CALL: 0, **effects}


def _merged(counts: Iterable[dict[str, int]]) -> dict[str, set[int]]:
    """All the values of each key."""
    merged: dict[str, set[int]] = {}
    for each in counts:
        for what, count in each.items():
            merged.setdefault(what, set()).add(count)
    return merged


def _difference(a: HloModule, b: HloModule) -> str:
    """Opcode counts in which two modules differ."""
    left, right = a.opcode_counts(), b.opcode_counts()
    return (
        ", ".join(
            f"{opcode} {left.get(opcode, 0)} and {right.get(opcode, 0)}"
            for opcode in sorted(set(left) | set(right))
            if left.get(opcode, 0) != right.get(opcode, 0)
        )
        or "opcode counts are equal"
    )


def check_relevant_exactly(
    source: str, passes: Sequence[str], *, max_combinations: int = 600
) -> Iterator[Report]:
    """`relevant` against brute force over every decision vector of small captures.

    A decision that changes the module, given the others, has to be relevant; given
    only some of the others, when it changes the module in some completion.
    """
    module = load(source)
    for each in passes:
        try:
            alternatives = capture(module, each)
        except errors.PassError as error:
            yield Report(each, 0, (), skipped=str(error))
            continue
        num_choices = [int(n) for n in alternatives.num_choices]
        if not num_choices or math.prod(num_choices) > max_combinations:
            yield Report(each, len(num_choices), (), skipped="too few or too many")
            continue
        yield Report(
            each, len(num_choices), tuple(_relevant_by_force(alternatives, num_choices))
        )


def _relevant_by_force(
    alternatives: Alternatives, num_choices: list[int]
) -> Iterator[str]:
    prints = {
        decisions: alternatives.apply(decisions).fingerprint()
        for decisions in itertools.product(*map(range, num_choices))
    }
    matters = {
        decisions: [
            any(
                prints[(*decisions[:i], other, *decisions[i + 1 :])] != fingerprint
                for other in range(count)
            )
            for i, count in enumerate(num_choices)
        ]
        for decisions, fingerprint in prints.items()
    }
    for decisions, needed in matters.items():
        said = alternatives.relevant(decisions).tolist()
        for i, (need, say) in enumerate(zip(needed, said, strict=True)):
            if need and not say:
                yield f"relevant: {i} matters at {list(decisions)}"
    rng = random.Random(0)
    for _ in range(50):
        partial = [rng.choice([-1, rng.randrange(n)]) for n in num_choices]
        said = alternatives.relevant(partial).tolist()
        for decisions, needed in matters.items():
            if any(p not in (-1, d) for p, d in zip(partial, decisions, strict=True)):
                continue
            for i, (need, say) in enumerate(zip(needed, said, strict=True)):
                if need and not say:
                    yield f"relevant: {i} matters at {partial}"


# --- values -------------------------------------------------------------------

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


def check_values(
    source: str,
    variant: str,
    passes: Sequence[str],
    *,
    seed: int = 0,
    num_decisions: int = 3,
) -> Iterator[Report]:
    """Laws 4 and 5 for each of `passes`, in XLA's evaluator.

    Random decisions, and each pass's own, give the outputs of the original; every
    choice is as its original.
    """
    try:
        module = load(source, variant)
    except errors.PassError as error:
        yield Report("", 0, (), skipped=str(error))
        return
    if is_stateful(module):
        yield Report("", 0, (), skipped="stateful: compared by structure only")
        return
    try:
        expected = Expected.of(module, seed)
    except errors.ExecuteError as error:
        yield Report("", 0, (), skipped=str(error))
        return
    rng = random.Random(seed)
    for each in passes:
        yield _check_values(module, each, expected, rng, num_decisions, seed)


def _holds_in_float64(
    module: HloModule,
    passes: str,
    alternatives: Alternatives,
    decisions: npt.NDArray[np.int64],
    seed: int,
) -> bool:
    """Whether the same decisions change nothing where rounding is no excuse."""
    try:
        wide = widened(module)
        again = capture(wide, passes)
        if not np.array_equal(again.num_choices, alternatives.num_choices):
            return False
        outputs = interpret(again.apply(decisions), *random_inputs(wide, seed))
        return not list(Expected.of(wide, seed).differences(outputs))
    except errors.HloEnvError:
        return False


def _check_values(
    module: HloModule,
    passes: str,
    expected: Expected,
    rng: random.Random,
    num_decisions: int,
    seed: int,
) -> Report:
    try:
        alternatives = capture(module, passes)
    except errors.PassError as error:
        return Report(passes, 0, (), skipped=str(error))
    if not len(alternatives):
        return Report(passes, 0, ())
    violations: list[str] = []
    skipped = ""
    narrow = not _PRECISION_PASSES.isdisjoint(passes.split(","))
    vectors = [alternatives.decisions_for(name) for name in passes.split(",")]
    vectors += [random_decisions(alternatives, rng) for _ in range(num_decisions)]
    for decisions in vectors:
        decided = alternatives.apply(decisions)
        try:
            outputs = interpret(decided, *expected.inputs)
        except errors.ExecuteError as error:
            skipped = str(error)
            continue
        lines = list(expected.differences(outputs, narrow=narrow))
        if lines and _holds_in_float64(module, passes, alternatives, decisions, seed):
            continue
        violations += [f"law 4: {decisions.tolist()}: {line}" for line in lines]
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
    for record in records:
        # A cancellation inside may lose more digits than the outputs do.
        limit = _SMALL_FLOAT_TOLERANCE if narrow else 1e-2
        if record.relative > limit and record.absolute > 1e-4:
            violations.append(
                f"law 5: choice {record.choice} of "
                f"{alternatives[record.alternative]!r} is off by {record.absolute:.3g} "
                f"(relative {record.relative:.3g})"
            )
    return Report(passes, len(alternatives), tuple(violations), skipped=skipped)
