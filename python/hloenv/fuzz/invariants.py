# SPDX-License-Identifier: Apache-2.0
"""Invariants 1, 2, 3, 6 and 7, and the verifier's part of 4, on one module."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import errors
from ..hlo.module import HloModule
from ..hlo.passes import (
    Pipeline,
    as_pipeline,
    is_candidate,
    pass_names,
    run_passes,
)
from ..process.forkserver import note
from ..rewrite.alternatives import Alternatives, capture

# Opcodes with side effects.
_EFFECTS = ("rng", "infeed", "outfeed", "send", "recv", "all-reduce")
_EFFECTFUL_CALL = "custom_call_has_side_effect=true"

# Passes that report no change although they copied a reducer shared by all-reduces.
_UNTRUE_PASSES = (
    "bf16-mixed-precision-removal",
    "float-normalization-",
    # Pipelines with passes that wrongly report no change.
    "post_scatter_expansion_simplification",
    "simplification",
)

# Passes that draw new random seeds in each run, so that two runs cannot be compared.
_UNREPEATABLE_PASSES = {"rng-expander"}

Vectors = list[npt.NDArray[np.int64]]
Draw = Callable[[Alternatives, random.Random], Vectors]


@dataclass(frozen=True)
class Report:
    """The result of one check of one capture.

    Attributes:
        passes: names joined by ",".
        num_alternatives: of the capture.
        violations: "invariant N: ..." each; empty when all is well.
        skipped: a reason for each check that was not made.
        num_checks: number of comparisons.
        whole: indivisible passes of the capture, with the reason.
    """

    passes: str
    num_alternatives: int
    violations: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    num_checks: int = 0
    whole: tuple[tuple[str, str], ...] = ()


def parse(passes: str) -> list[Pipeline]:
    """Returns pipelines of names joined by ","."""
    return [as_pipeline(name) for name in passes.split(",")]


@functools.cache
def random_decisions(
    alternatives: Alternatives, rng: random.Random
) -> npt.NDArray[np.int64]:
    """[A] decisions, each choice as likely as any other."""
    return np.array([rng.randrange(int(n)) for n in alternatives.num_choices], np.int64)


def _draw_two(alternatives: Alternatives, rng: random.Random) -> Vectors:
    return [random_decisions(alternatives, rng) for _ in range(2)]


class StructureChecker:
    """Checks captures of one module.

    Args:
        module: the module to capture.
        seed: of random decisions.
        draw: draws the decisions to check on a capture; two random vectors by default.
    """

    def __init__(
        self, module: HloModule, seed: int, *, draw: Draw | None = None
    ) -> None:
        self.module = module
        self.text = module.to_text()
        self.fingerprint = module.fingerprint()
        self.seed = seed
        self.draw = draw or _draw_two
        self.natives: dict[Pipeline, tuple[HloModule, bool]] = {}
        self.alternatives: Alternatives | None = None
        self._has_round_trip: bool | None = None
        self._skipped: list[str] = []  # by the current check

    def native(self, pipeline: Pipeline) -> tuple[HloModule, bool]:
        """Returns the module after a native run, and whether it reported a change."""
        if pipeline not in self.natives:
            note(f"native {pipeline.name}")
            run = run_passes(self.module, pipeline)
            self.natives[pipeline] = (run.module, run.changed)
        return self.natives[pipeline]

    def check(self, pipelines: Sequence[Pipeline]) -> Report:
        """Captures the pipelines jointly into `alternatives` and checks the capture."""
        passes = ",".join(each.name for each in pipelines)
        self.alternatives = None
        try:
            for each in pipelines:
                if not is_candidate(each):
                    self.native(each)
        except errors.PassError as error:
            return self._check_failing(pipelines, passes, str(error))
        note(f"capture {passes}")
        try:
            alternatives = capture(self.module, pipelines)
        except errors.PassError as error:
            # A pass that runs natively must be capturable.
            if not all(map(is_candidate, pipelines)):
                return Report(passes, 0, (f"the capture fails: {error}",))
            return Report(passes, 0, skipped=(str(error),))
        self.alternatives = alternatives
        note(f"structure {passes}")
        self._skipped = []
        violations: list[str] = []
        violations += self._check_unchanged()
        violations += self._check_same_again(alternatives, pipelines)
        violations += self._check_decisions(alternatives, pipelines)
        violations += self._check_honesty(alternatives, pipelines)
        violations += self._check_module_text()
        if len(alternatives):
            violations += self._check_graph(alternatives)
            violations += self._check_random(alternatives, pipelines)
        elif alternatives.module.fingerprint() != self.fingerprint:
            violations.append(
                "invariant 7: the graph of no alternatives is not the module"
            )
        return Report(
            passes,
            len(alternatives),
            tuple(violations),
            tuple(self._skipped),
            num_checks=1,
            whole=tuple(sorted(alternatives.indivisible.items())),
        )

    def _check_failing(
        self, pipelines: Sequence[Pipeline], passes: str, reason: str
    ) -> Report:
        """A pass that fails natively must fail the same way in a capture."""
        note(f"failing capture {passes}")
        try:
            capture(self.module, pipelines)
        except errors.PassError:
            return Report(passes, 0, tuple(self._check_unchanged()), skipped=(reason,))
        return Report(passes, 0, (f"capture works, but the pass fails: {reason}",))

    def _check_unchanged(self) -> Iterator[str]:
        if self.module.fingerprint() != self.fingerprint:
            yield "invariant 1: the capture changed the fingerprint of its module"
        if self.module.to_text() != self.text:
            yield "invariant 1: the capture changed the text of its module"

    def _check_same_again(
        self, alternatives: Alternatives, pipelines: Sequence[Pipeline]
    ) -> Iterator[str]:
        again = capture(self.module, pipelines)
        if again.num_choices.tolist() != alternatives.num_choices.tolist():
            yield "invariant 6: a second capture has other choices"
        # Some XLA passes name an instruction after one of several equal values,
        # selected by address, so the texts may differ in names.
        elif again.module.fingerprint() != alternatives.module.fingerprint():
            yield "invariant 6: a second capture has another alternative graph"

    def _check_decisions(
        self, alternatives: Alternatives, pipelines: Sequence[Pipeline]
    ) -> Iterator[str]:
        rejected = alternatives.apply(alternatives.reject_all())
        if rejected.fingerprint() != self.fingerprint:
            yield "invariant 2: rejecting everything gives another module"
            return  # invariant 3 cannot hold either
        for each in pipelines:
            if is_candidate(each):
                continue
            decisions = alternatives.decisions_for(each.name)
            native, changed = self.native(each)
            if not _UNREPEATABLE_PASSES.isdisjoint(pass_names([each])):
                if changed:
                    self._skipped.append(
                        f"invariant 3: {each.name!r} draws other seeds in each run"
                    )
                continue
            # The result must also follow from the alternatives.
            rebuilt = HloModule._wrap(
                alternatives._capture.apply(decisions, rebuild=True)
            )
            for accepted in (alternatives.apply(decisions), rebuilt):
                if accepted.fingerprint() != native.fingerprint():
                    yield (
                        f"invariant 3: decisions_for({each.name!r}) and the native run "
                        "differ: " + _difference(accepted, native)
                    )
                    break

    def _check_honesty(
        self, alternatives: Alternatives, pipelines: Sequence[Pipeline]
    ) -> Iterator[str]:
        for each in pipelines:
            if is_candidate(each):
                continue
            native, changed = self.native(each)
            name = each.name
            found: list[str] = []
            if not changed and native.fingerprint() != self.fingerprint:
                found.append(f"{name!r} reports no change, but changed the module")
            if not changed and alternatives.decisions_for(name).any():
                found.append(f"{name!r} reports no change, but has choices")
            if any(name.startswith(_UNTRUE_PASSES) for name in pass_names([each])):
                self._skipped += (f"a known bug of XLA's: {text}" for text in found)
            else:
                yield from (f"honesty: {text}" for text in found)

    def _check_module_text(self) -> Iterator[str]:
        """Checks the round trip of the module itself, once."""
        if self._has_round_trip is None:
            again = HloModule.from_text(self.text)
            self._has_round_trip = again.fingerprint() == self.fingerprint
        if not self._has_round_trip:
            yield "invariant 7: the module's text gives another module"

    def _check_graph(self, alternatives: Alternatives) -> Iterator[str]:
        graph = alternatives.module
        if error := _verifier_error(graph):
            yield f"invariant 7: the verifier rejects the graph: {error}"
        elif _fingerprint_of_text(graph) != graph.fingerprint():
            yield "invariant 7: the graph's text gives another graph"
        if int(alternatives.num_choices.min()) < 2:
            yield "an alternative has no choice beside the original"

    def _check_random(
        self, alternatives: Alternatives, pipelines: Sequence[Pipeline]
    ) -> Iterator[str]:
        rng = random.Random(self.seed)
        allowed = self._allowed_effects(alternatives, pipelines)
        for decisions in self.draw(alternatives, rng):
            decided = alternatives.apply(decisions)
            if error := _verifier_error(decided):
                yield f"invariant 4: the verifier rejects {decisions.tolist()}: {error}"
                continue
            if _fingerprint_of_text(decided) != decided.fingerprint():
                yield (
                    f"invariant 7: the text of {decisions.tolist()} gives another "
                    "module"
                )
            yield from _check_effects(decided, allowed)
            yield from self._check_relevant(alternatives, decisions, decided, rng)

    def _allowed_effects(
        self, alternatives: Alternatives, pipelines: Sequence[Pipeline]
    ) -> dict[str, set[int]]:
        """Returns the allowed counts of each effect that no native run changes."""
        natives = [self.native(each)[0] for each in pipelines if not is_candidate(each)]
        counts = _merged(map(_effects, [self.module, *natives]))
        # Unreachable effects may be removed by any decision.
        kept = _effects(alternatives.apply(alternatives.reject_all()))
        return {
            what: found | {kept[what]}
            for what, found in counts.items()
            if len(found) == 1
        }

    def _check_relevant(
        self,
        alternatives: Alternatives,
        decisions: npt.NDArray[np.int64],
        decided: HloModule,
        rng: random.Random,
    ) -> Iterator[str]:
        """Checks that choices at irrelevant alternatives do not change the module."""
        relevant = alternatives.relevant(decisions)
        irrelevant = np.flatnonzero(~relevant)
        if not len(irrelevant):
            return
        other = decisions.copy()
        for position in irrelevant:
            other[position] = rng.randrange(int(alternatives.num_choices[position]))
        if alternatives.apply(other).fingerprint() != decided.fingerprint():
            yield (
                f"relevant: {irrelevant.tolist()} of {decisions.tolist()} are said to "
                f"be irrelevant, but {other.tolist()} gives another module"
            )


def _fingerprint_of_text(module: HloModule) -> str:
    """Returns the fingerprint of the module that a valid module's text gives.

    The verifier, which has accepted the module, does not run on it again.
    """
    return HloModule.from_text(module.to_text(), verify=False)._raw.fingerprint()


def _verifier_error(module: HloModule) -> str:
    """Returns the verifier's error for a module, or ""."""
    try:
        module.verify()
    except errors.InvalidModuleError as error:
        return str(error)
    return ""


def _check_effects(decided: HloModule, allowed: dict[str, set[int]]) -> Iterator[str]:
    found = _effects(decided)
    for what, counts in allowed.items():
        if found[what] not in counts:
            yield f"invariant 4: {what}: {sorted(counts)} became {found[what]}"


def _effects(module: HloModule) -> dict[str, int]:
    """Counts the instructions of each kind of effect."""
    counts = module.opcode_counts()
    effects = {opcode: counts.get(opcode, 0) for opcode in _EFFECTS}
    if "custom-call" in counts:
        effects[_EFFECTFUL_CALL] = module.to_text().count(_EFFECTFUL_CALL)
    return {_EFFECTFUL_CALL: 0, **effects}


def _merged(counts: Iterable[dict[str, int]]) -> dict[str, set[int]]:
    """Collects the values of each key."""
    merged: dict[str, set[int]] = {}
    for each in counts:
        for what, count in each.items():
            merged.setdefault(what, set()).add(count)
    return merged


def _difference(a: HloModule, b: HloModule) -> str:
    """Describes the opcode counts in which two modules differ."""
    left, right = a.opcode_counts(), b.opcode_counts()
    return (
        ", ".join(
            f"{opcode} {left.get(opcode, 0)} and {right.get(opcode, 0)}"
            for opcode in sorted(set(left) | set(right))
            if left.get(opcode, 0) != right.get(opcode, 0)
        )
        or "opcode counts are equal"
    )
