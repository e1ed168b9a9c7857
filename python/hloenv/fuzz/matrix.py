# SPDX-License-Identifier: Apache-2.0
"""Checks the invariants on one module for many passes; runs in child processes.

Arguments and results are plain values. Pass names joined by "," are captured jointly.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .. import errors
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline, run_passes
from ..hlo.pipeline import finish, list_stages, run_until
from ..process.forkserver import note, starts
from ..rewrite.alternatives import Alternatives, capture
from ..rewrite.placement import at_place
from .compiled import CompiledExpected, check_compiled
from .examples import Range
from .expected import Expected
from .generator.module import KINDS, random_module
from .invariants import Report, StructureChecker, parse, random_decisions
from .values import check_capture, check_decisions, draw_vectors, is_stateful

# The passes that prepare a module for a capture; JAX puts most instructions in calls.
# Any other variant is a pass of XLA's pipeline: the module is captured before that
# pass.
VARIANTS: dict[str, tuple[str, ...]] = {
    "raw": (),
    "inlined": ("call-inliner", "dce"),
    "flattened": ("flatten-call-graph",),
}
# The variant before a later run of the checked pass in XLA's pipeline.
LATER = "in front of a later run"
# Of inputs and decisions: a check is the same in each run.
_SEED = 0


def load(source: str, variant: str = "raw") -> HloModule:
    """Loads a module from a path, text, or "seed:N", and prepares it as `variant`.

    "seed:N:SIZE" sets the generator's size; "wide:N:SIZE" includes rare opcodes, and
    "grid:N:SIZE" has large arrays, see `random_module`.

    Raises:
        HloEnvError: XLA cannot read it, or a preparing pass fails.
    """
    kind, _, numbers = source.partition(":")
    if kind in KINDS:
        text = random_module(*map(int, numbers.split(":")), kind=kind)
        module = HloModule.from_text(text)
    elif "\n" in source:
        module = HloModule.from_text(source)
    else:
        module = HloModule.from_text(Path(source).read_text())
    if variant not in VARIANTS:
        return run_until(module, variant)
    for name in VARIANTS[variant]:
        module = run_passes(module, name).module
    return module


def text_at(source: str, variant: str) -> str:
    """Returns the text of the module that `load` returns."""
    return load(source, variant).to_text()


def _loaded(source: str, variant: str) -> HloModule | str:
    """Returns the module, or the reason why it could not be loaded."""
    note(f"native load {variant}")
    try:
        return load(source, variant)
    except (errors.PassError, errors.PositionError, errors.CompileError) as error:
        return f"{variant}: {error}"


def _each(
    module: HloModule, passes: Sequence[str], check: Callable[[list[Pipeline]], Report]
) -> Iterator[Report]:
    """Yields a report for each of `passes`; skips passes not allowed at the variant."""
    for names in passes:
        starts(names)
        try:
            pipelines = [at_place(each, module) for each in parse(names)]
        except errors.PositionError as error:
            yield Report(names, 0, skipped=(str(error),))
            continue
        yield check(pipelines)


def _none(passes: Sequence[str], reason: str) -> Iterator[Report]:
    """Yields reports for a module on which nothing can be checked."""
    for names in passes:
        yield Report(names, 0, skipped=(reason,))


def check_structure(
    source: str,
    variant: str,
    passes: Sequence[str],
) -> Iterator[Report]:
    """Checks invariants 1, 2, 3, 6, 7, and 4 by the verifier, for each of `passes`.

    A pass that cannot run on this module is reported as skipped, with its error.
    """
    module = _loaded(source, variant)
    if isinstance(module, str):
        yield from _none(passes, module)
        return
    checker = StructureChecker(module, _SEED)
    yield from _each(module, passes, checker.check)


def check_values(
    source: str,
    variant: str,
    passes: Sequence[str],
    ranges: Sequence[Range] = (),
) -> Iterator[Report]:
    """Checks invariants 4 and 5 for each of `passes` in XLA's evaluator.

    Random decisions, and each pass's own, must give the outputs of the original, and
    every choice the value of its original.
    """
    module = _loaded(source, variant)
    if isinstance(module, str):
        yield from _none(passes, module)
        return
    if is_stateful(module):
        yield from _none(passes, "stateful: compared by structure only")
        return
    note("expected")
    try:
        expected = Expected(module, _SEED, ranges)
    except errors.ExecuteError as error:
        yield from _without_evaluator(module, passes, ranges, str(error))
        return

    def check(pipelines: list[Pipeline]) -> Report:
        rng = _rng(pipelines)

        def check_alternatives(alternatives: Alternatives) -> Report:
            vectors = draw_vectors(alternatives, rng, 2)
            return check_decisions(alternatives, module, pipelines, expected, vectors)

        return check_capture(module, pipelines, check_alternatives)

    yield from _each(module, passes, check)


def check_compiled_values(
    source: str,
    variant: str,
    passes: Sequence[str],
    ranges: Sequence[Range] = (),
) -> Iterator[Report]:
    """Checks invariant 4 on compiled modules, after the rest of XLA's pipeline."""
    module = _loaded(source, variant)
    if isinstance(module, str):
        yield from _none(passes, module)
        return
    if is_stateful(module):
        yield from _none(passes, "stateful: compared by structure only")
        return
    try:
        expected = CompiledExpected(module, _SEED, ranges)
    except errors.HloEnvError as error:
        yield from _none(passes, f"the original does not compile: {error}")
        return

    def check(pipelines: list[Pipeline]) -> Report:
        rng = _rng(pipelines)
        return check_capture(
            module,
            pipelines,
            lambda alternatives: check_compiled(
                alternatives, expected, draw_vectors(alternatives, rng, 1)
            ),
        )

    yield from _each(module, passes, check)


def check_default(source: str, variant: str, passes: Sequence[str]) -> Iterator[Report]:
    """Checks that XLA's own decisions and the rest of its pipeline give its default.

    Each of `passes` is decided before its first run, or, where `variant` is `LATER`,
    before a later one, drawn among all.
    """
    module = _loaded(source, "raw")
    if isinstance(module, str):
        yield from _none(passes, module)
        return
    note("native load finish")
    try:
        default = finish(module).fingerprint()
    except errors.CompileError as error:
        yield from _none(passes, f"XLA's pipeline fails: {error}")
        return
    runs = Counter(s.name for s in list_stages(module)) if variant == LATER else {}
    for name in passes:
        starts(name)
        occurrence = 1
        if variant == LATER:
            if runs[name] < 2:
                yield Report(name, 0, skipped=(f"{variant}: XLA runs it once",))
                continue
            occurrence = random.Random(f"{default} {name}").randint(2, runs[name])
        note(f"native run_until {name} {occurrence}")
        try:
            stopped = run_until(module, name, occurrence=occurrence)
            pipelines = [at_place(each, stopped) for each in parse(name)]
        except (errors.PositionError, errors.CompileError) as error:
            yield Report(name, 0, skipped=(f"{variant}: {error}",))
            continue
        yield _check_default(stopped, pipelines, default)


def _check_default(
    module: HloModule, pipelines: Sequence[Pipeline], default: str
) -> Report:
    (name,) = (each.name for each in pipelines)
    note(f"capture {name}")
    alternatives = capture(module, pipelines)
    decided = alternatives.apply(alternatives.decisions_for(name))
    note(f"structure finish {name}")
    violations: tuple[str, ...] = ()
    try:
        if finish(decided).fingerprint() != default:
            violations = (
                f"default: decisions_for({name!r}) and the rest of XLA's pipeline "
                "give another module than XLA's default",
            )
    except errors.CompileError as error:
        violations = (f"default: the rest of XLA's pipeline fails: {error}",)
    return Report(name, len(alternatives), violations, num_checks=1)


def _rng(pipelines: Sequence[Pipeline]) -> random.Random:
    """Returns a generator that depends only on the passes."""
    return random.Random(f"{_SEED} {','.join(each.name for each in pipelines)}")


def _without_evaluator(
    module: HloModule,
    passes: Sequence[str],
    ranges: Sequence[Range],
    reason: str,
) -> Iterator[Report]:
    """Checks invariant 4 compiled, where the evaluator does not support the module."""
    try:
        # XLA may crash on modules that its evaluator rejects.
        expected = CompiledExpected(module, _SEED, ranges, isolate=True)
    except errors.HloEnvError:
        yield from _none(passes, reason)
        return

    def check(pipelines: list[Pipeline]) -> Report:
        rng = _rng(pipelines)
        return check_capture(
            module,
            pipelines,
            lambda alternatives: check_compiled(
                alternatives, expected, [random_decisions(alternatives, rng)]
            ),
        )

    for report in _each(module, passes, check):
        if report.num_alternatives:
            skipped = f"invariant 5, and 4 in the evaluator: {reason}"
            yield replace(report, skipped=(*report.skipped, skipped))
        else:
            yield report
