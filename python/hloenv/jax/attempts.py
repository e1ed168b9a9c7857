# SPDX-License-Identifier: Apache-2.0
"""The ways in which one signature may be compiled other than by plain jax.jit.

A decided module goes back into jax by one of three routes:

* "stablehlo": decisions on the module as jax lowers it. jaxlib compiles the result
  with its whole pipeline; or the wheel's XLA does (`by_wheel`).
* "wheel": decisions anywhere in XLA's pipeline. The XLA of TensorFlow's wheel runs the
  rest of the pipeline, and jaxlib takes the result in front of its scheduler.
* "jaxlib": decisions on the module that jaxlib has optimized, in front of its
  scheduler.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from .._native import core
from .._typing import Int64Array
from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileError,
    HloEnvError,
    MeasureTimeout,
)
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline, run_passes
from ..hlo.pipeline import finish
from ..policies import Policy, get_policy
from ..policies.known_forms import FORM_PASSES
from ..process import child
from ..rewrite.alternatives import Alternatives
from ..runtime.jaxlib.options import OptionValue
from ..runtime.jaxlib.stablehlo import call_module
from .by_wheel import COMPILE_TIMEOUT_S, compiled_by_wheel
from .decide import Decided, Passes, as_pipelines, check_compiles, decide, label_of
from .library import left_out_of, options_for
from .overhead import for_wheel, may_be_short
from .replacements import NotReplacedError, Replace
from .stages import Stages, has_loops


@dataclass(frozen=True)
class Attempt:
    """One way to compile a signature.

    Attributes:
        name: distinguishes the attempts of a planner.
        decided: what was decided before the compilation.
        function: what the trace of the signature calls; None for the plain function.
        replace: for modules of jaxlib's; None leaves them.
        reason: why it need not be compiled; empty if it is to be tried.
        options: of jaxlib's compiler.
        prepare: makes the attempt that is to be tried; None if it is this one.
        discard: frees what was made for it, if it is not used.
        is_promising: whether it has forms that have made programs many times as fast.
    """

    name: str
    decided: Decided
    function: Callable[..., Any] | None = None
    replace: Replace | None = None
    reason: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    prepare: Callable[[], Attempt] | None = None
    discard: Callable[[], None] | None = None
    is_promising: bool = False


class Planner(Protocol):
    """Decides signatures.

    Attributes:
        text: the same exactly if decisions are the same; None if unknown.
        is_auto: whether it decides by hloenv's rules, so that what was measured to be
            best may be kept for other processes, and a function that donates decided.
    """

    text: str | None
    is_auto: bool

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """The ways to try, the most promising first.

        Each is tried before the next is asked for.

        Args:
            stages: of one signature.
        """


class Given:
    """Decisions of one policy on given passes; route "wheel"."""

    is_auto = False

    def __init__(
        self,
        policy: Policy,
        pipelines: Sequence[Pipeline],
        until: str | None,
        text: str | None,
        *,
        always: bool,
    ) -> None:
        """Decides always, or only where the result differs from XLA's default."""
        self.text = text
        self._always = always
        self._policy = policy
        self._pipelines = pipelines
        self._until = until

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`."""
        module = stages.module
        decided = decide(module, self._policy, self._pipelines, until=self._until)
        if not self._always and _is_default(decided):
            reason = "the decisions give the same compiled module as XLA's default"
            yield Attempt("given", decided, reason=reason)
            return
        check_compiles(decided.result)
        yield Attempt("given", decided, replace=functools.partial(give, decided))


def give(decided: Decided, theirs: HloModule) -> Decided:
    """The decided module in the place of one of jaxlib's.

    Raises:
        CompileError: jaxlib's has other layouts.
    """
    if theirs.entry_layout != decided.result.entry_layout:
        raise CompileError(
            f"jaxlib's module has entry layout {theirs.entry_layout}, but the decided "
            f"module has {decided.result.entry_layout}"
        )
    return decided


def _is_default(decided: Decided) -> bool:
    """Whether the decisions give XLA's default module."""
    if decided.num_accepted == decided.num_rejected == 0:
        return True
    return decided.result.fingerprint() == finish(decided.module).fingerprint()


# Passes, their policy: decided on the module as jax lowers it, and on jaxlib's.
_FORMS = FORM_PASSES, "known-forms"
_KERNELS = ("single-kernel",), "small-loops"
_WHEEL, _WHEEL_FORMS, _WHEEL_AS_IT_IS = "wheel", "wheel_forms", "wheel_as_it_is"
_BY_WHEEL = (_WHEEL, _WHEEL_FORMS, _WHEEL_AS_IT_IS)
# Rules that are tried alone where all together are not faster.
_MAX_ALONE = 4
# Those that have gained most (docs/results/programs.md). Others come after them, what
# applies most often first.
_FIRST = {
    f"convolution-forms/{rule}": place
    for place, rule in enumerate(
        ("taps", "taps_apart", "outputs", "rows", "patches", "phases")
    )
}
_ONLY = "forms of "
# Ends the names of attempts with options of the compiler.
WITH_OPTIONS = "_library"
# A rule that makes loops, whose state needs copies; jaxlib has inserted its own before.
_NEEDS_COPIES = "plain_scatters"


class Auto:
    """hloenv's fixed rules; routes "stablehlo" and "jaxlib", options, the wheel."""

    text: str | None = "auto"
    is_auto = True

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`."""
        module = stages.module
        if stages.wanted.startswith(_ONLY):
            rules = stages.wanted.removeprefix(_ONLY).split()
            yield from self._forms_of_rules(stages, rules)
            return
        is_plain = stages.wanted in (_WHEEL, _WHEEL_AS_IT_IS)
        forms = None if is_plain else self._forms(stages)
        if stages.wanted in _BY_WHEEL:
            yield from self._by_wheel(stages, forms)
            return
        if forms is not None and forms.reason:
            yield forms
            return
        kernels = Attempt(
            "kernels",
            Decided(module, module, route="jaxlib"),
            replace=functools.partial(kernels_of, is_safe=stages.is_safe),
        )
        if stages.donates or not has_loops(module):
            kernels = replace(kernels, replace=None, reason="no rule applies to it")
        if forms is not None and kernels.replace is not None:
            yield replace(forms, name="forms_kernels", replace=kernels.replace)
        yield from self._without_library(stages, forms)
        if forms is not None:
            yield forms
        if forms is None or (
            kernels.replace is not None and not any(stages.usable.values())
        ):
            yield kernels
        if forms is not None and not any(stages.usable.values()):
            yield from self._some_forms(stages, forms.decided)
        yield from self._by_wheel(stages, forms)

    def _by_wheel(self, stages: Stages, forms: Attempt | None) -> Iterator[Attempt]:
        """Loops, and what is short, by the code that the wheel's XLA generates.

        In forms where these are faster, and with less overhead. Which of the two
        compilers is faster cannot be estimated: it is compared or not used. Not where
        values decide what runs: another compiler's code is not only faster or slower in
        what the comparison has run.
        """
        if not stages.compares or stages.donates or stages.has_while or stages.has_cond:
            return
        if stages.wanted not in ("", *_BY_WHEEL):  # another attempt is best
            return
        module = stages.module
        if not stages.has_scan and (has_loops(module) or not may_be_short(module)):
            return
        name, decided = _WHEEL, Decided(module, module, route="stablehlo")
        if forms is not None and _are_used(stages):
            name, decided = _WHEEL_FORMS, forms.decided
        as_it_is = replace(decided, engine="wheel")
        may_be_plain = stages.has_scan and name == _WHEEL
        try:
            if not stages.is_safe:  # XLA's passes run on it here
                child.try_compile(
                    decided.applied.to_bytes(), "legalize", timeout_s=COMPILE_TIMEOUT_S
                )
            if stages.wanted != _WHEEL_AS_IT_IS:
                decided = for_wheel(decided)
        except HloEnvError as error:
            yield Attempt(name, as_it_is, reason=str(error))
            return
        # Without loops, another compiler alone is no gain.
        is_worth_it = decided.route == "wheel" or (
            stages.has_scan and name == _WHEEL_FORMS
        )
        if is_worth_it and stages.wanted != _WHEEL_AS_IT_IS:
            prepare = functools.partial(_compiled, Attempt(name, decided), stages)
            yield Attempt(name, decided, prepare=prepare)
        # Steps in sequence may lose on several cores.
        if may_be_plain and not stages.usable.get(name):
            attempt = Attempt(_WHEEL_AS_IT_IS, as_it_is)
            prepare = functools.partial(_compiled, attempt, stages)
            yield replace(attempt, prepare=prepare)

    def _without_library(
        self, stages: Stages, forms: Attempt | None
    ) -> Iterator[Attempt]:
        """Where that is estimated to be faster, with less of jaxlib's library."""
        module = stages.module
        if forms is None:
            undecided = Decided(module, module, route="stablehlo")
            forms = Attempt("plain", undecided)
        options = options_for(forms.decided.applied)
        if options:
            yield replace(
                forms,
                name=f"{forms.name}{WITH_OPTIONS}",
                decided=replace(forms.decided, left_out=left_out_of(options)),
                options=options,
            )

    def _some_forms(self, stages: Stages, every: Decided) -> Iterator[Attempt]:
        """Other forms of convolutions that gain most, without the rest of `every`.

        Where these are not faster, each rule alone, then those together that are faster
        alone.
        """
        rules = sorted(every.accepted, key=lambda rule: _order(rule, every))
        if len(rules) == 1:
            return
        convolutions = [each for each in rules if each in _FIRST]
        if 1 < len(convolutions) < len(rules):
            yield from self._forms_of_rules(stages, convolutions)
            if stages.usable.get(_ONLY + " ".join(convolutions)):
                return
        for rule in rules[:_MAX_ALONE]:
            yield from self._forms_of_rules(stages, [rule])
        faster = [each for each in rules if stages.usable.get(_ONLY + each)]
        if 1 < len(faster) < len(rules) and faster != convolutions:
            yield from self._forms_of_rules(stages, faster)

    def _forms_of_rules(
        self, stages: Stages, rules: Sequence[str]
    ) -> Iterator[Attempt]:
        forms = self._forms(stages, rules)
        if forms is not None:
            yield replace(forms, name=_ONLY + " ".join(rules))

    def _forms(
        self, stages: Stages, rules: Container[str] | None = None
    ) -> Attempt | None:
        """None if no rule applies; `rules` as in `forms_of`."""
        if _calls_python(stages.module):
            undecided = Decided(stages.module, stages.module, route="stablehlo")
            return Attempt("forms", undecided, reason="it calls Python")
        decided = forms_of(stages.module, rules)
        if decided is None:
            return None
        try:
            call = call_module(decided.applied, stages.traced, stages.lowered)
        except CompileError as error:
            return Attempt("forms", decided, reason=str(error))
        is_promising = not _FIRST.keys().isdisjoint(decided.accepted)
        return Attempt("forms", decided, call, is_promising=is_promising)


def _order(rule: str, decided: Decided) -> tuple[int, int]:
    return _FIRST.get(rule, len(_FIRST)), -decided.accepted[rule]


def _are_used(stages: Stages) -> bool:
    """Whether all forms together are clearly faster, or were in another process."""
    together = any(
        is_usable and name.split("_")[0] == "forms"
        for name, is_usable in stages.usable.items()
    )
    return together or stages.wanted == _WHEEL_FORMS


def _compiled(attempt: Attempt, stages: Stages) -> Attempt:
    """As a call of what the wheel's XLA compiles."""
    decided = attempt.decided
    is_final = decided.route == "wheel"
    try:
        function, discard = compiled_by_wheel(
            decided.result,
            stages,
            # As it is, it has been compiled in a child already.
            is_safe=stages.is_safe or not is_final,
            finish="none" if is_final else "legalize",
        )
    except HloEnvError as error:
        return replace(attempt, reason=str(error))
    return replace(attempt, function=function, discard=discard)


def forms_of(module: HloModule, rules: Container[str] | None = None) -> Decided | None:
    """The module with other forms of its operations; None if no rule applies.

    Args:
        module: as jax lowers it.
        rules: only these, such as "dot-forms/swapped"; None for all.
    """
    passes, name = _FORMS
    policy = get_policy(name)
    if rules is not None:
        policy = functools.partial(_decide_rules, policy, rules)
    # As XLA's first passes: a gradient gets what the function itself has computed, such
    # as weights, as arguments of a call.
    inlined = run_passes(module, "call-inliner", "tuple-simplifier").module
    decided = decide(inlined, policy, as_pipelines(passes), route="stablehlo")
    return replace(decided, module=module) if decided.num_accepted else None


def _decide_rules(
    policy: Policy, rules: Container[str], alternatives: Alternatives
) -> Int64Array:
    """Decisions of a policy, of which those for other rules are left to XLA."""
    decisions = np.array(policy(alternatives), np.int64)
    for index in np.flatnonzero(decisions > 0).tolist():
        if label_of(alternatives[index].choices[decisions[index]]) not in rules:
            decisions[index] = -1
    return decisions


def kernels_of(theirs: HloModule, *, is_safe: bool) -> Decided:
    """Decides the loops of a module of jaxlib's: those of small operations.

    Args:
        theirs: in front of jaxlib's scheduler.
        is_safe: whether the result is known to compile.

    Raises:
        NotReplacedError: no rule applies, or the result does not compile.
    """
    passes, policy = _KERNELS
    decided = decide(theirs, get_policy(policy), as_pipelines(passes), route="jaxlib")
    if decided.num_accepted == 0:
        raise NotReplacedError("no rule applies to a loop of jaxlib's module")
    if any(label.endswith(_NEEDS_COPIES) for label in decided.accepted):
        copied = run_passes(decided.applied, "copy-insertion").module
        decided = replace(decided, applied=copied)
    try:
        if not is_safe:
            check_compiles(decided.result, timeout_s=COMPILE_TIMEOUT_S)
    except (CompileError, MeasureTimeout) as error:
        raise NotReplacedError(str(error)) from error
    return decided


class Kept:
    """Only what `hloenv.tune` has kept; everything else is plain jax.jit."""

    text: str | None = "tuned"
    is_auto = True

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`: none."""
        module = stages.module
        undecided = Decided(module, module, route="stablehlo")
        yield Attempt("tuned", undecided, reason="nothing is tuned for it")


def _calls_python(module: HloModule) -> bool:
    """Whether it has custom calls of functions that only jax keeps alive."""
    targets = (each[0] for each in core.custom_call_targets(module._core))
    return any("callback" in target for target in targets)


def planner_of(
    policy: str | Policy | Planner,
    passes: Passes | None,
    until: str | None,
    *,
    always: bool,
) -> Planner:
    """The planner of `jit`'s arguments; `always` as in `Given`.

    Raises:
        ArgumentError: "auto" was given passes.
        ArgumentTypeError: the policy is not callable, or passes are not passes.
        UnknownPassError: no pass has this name.
        UnknownPolicyError: no policy has this name.
    """
    if isinstance(policy, str) and policy in ("auto", "tuned"):
        if passes is not None:
            raise ArgumentError(
                f"passes={passes!r} need a policy: policy={policy!r} decides its own "
                "passes; see hloenv.policies.list_policies()"
            )
        return Auto() if policy == "auto" else Kept()
    if hasattr(policy, "attempts"):
        return cast("Planner", policy)
    pipelines = as_pipelines("algsimp" if passes is None else passes)
    text = None
    if isinstance(policy, str):
        plan = [policy, until, [each.to_json() for each in pipelines]]
        text = json.dumps(plan, sort_keys=True)
        policy = get_policy(policy)
    if not callable(policy):
        raise ArgumentTypeError(
            "policy must be a name, or a function from Alternatives to decisions, "
            f"got {type(policy).__name__}"
        )
    return Given(policy, pipelines, until, text, always=always)
