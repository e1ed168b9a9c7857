# SPDX-License-Identifier: Apache-2.0
"""The ways to compile a signature that hloenv's fixed rules propose."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from .._native import core
from ..errors import CompileError, HloEnvError, MeasureTimeout
from ..hlo.module import HloModule
from ..hlo.passes import run_passes
from ..policies import get_policy
from ..policies.known_calls import CALL_PASSES
from ..policies.known_forms import FORM_PASSES
from ..policies.loops import SmallLoops
from ..process import child
from ..runtime.jaxlib.options import are_wrong, can_keep_compiled
from ..runtime.jaxlib.stablehlo import call_module
from .attempts import WITH_OPTIONS, Attempt
from .by_wheel import COMPILE_TIMEOUT_S, compiled_by_wheel
from .decide import (
    OF_LIBRARY,
    Decided,
    as_pipelines,
    check_compiles,
    decide,
    only_rules,
)
from .library import left_out_of, options_for
from .onednn import CACHE_IS_ON, has_onednn, is_cache_on
from .overhead import for_wheel, may_be_short
from .replacements import NotReplacedError
from .settings import SETTINGS, min_ns_of, settings_for, split_name
from .stages import Stages, has_loops

# Passes, their policy: decided on the module as jax lowers it, and on jaxlib's.
_FORMS = FORM_PASSES, "known-forms"
_CALLS = CALL_PASSES, "known-calls"
_KERNELS = ("single-kernel",)
# What kernels of loops save at least, by estimate, as a share of a call of the plain
# function: compiling them takes several times as long as that.
_MIN_SAVED = 0.01
# jax lowers the body of a loop, and what a gradient keeps, as calls; and twice what is
# written twice, of which jaxlib's compiler computes one.
INLINING = ("call-inliner", "tuple-simplifier", "cse")
_PLAIN = "plain"
_BOTH = "forms_kernels"
_BY_ONEDNN = "onednn"
_WHEEL, _WHEEL_FORMS, _WHEEL_AS_IT_IS = "wheel", "wheel_forms", "wheel_as_it_is"
_BY_WHEEL = (_WHEEL, _WHEEL_FORMS, _WHEEL_AS_IT_IS)
# Rules that are tried alone where all together are not faster.
_MAX_ALONE = 4
# Those that have gained most (docs/results/programs.md). Others come after them, what
# applies most often first.
_FIRST = {
    rule: place
    for place, rule in enumerate(
        (
            *("convolution-forms/taps", "convolution-forms/taps_apart"),
            *("convolution-forms/terms", "dot-forms/as_stored"),
            *("convolution-forms/outputs", "convolution-forms/rows"),
            *("convolution-forms/patches", "convolution-forms/phases"),
            *("convolution-forms/bands", "convolution-forms/channels_last"),
        )
    )
}
_ONLY = "forms of "
# A rule that makes loops, whose state needs copies; jaxlib has inserted its own before.
_NEEDS_COPIES = "plain_scatters"


class Auto:
    """hloenv's fixed rules; routes "stablehlo" and "jaxlib", options, the wheel."""

    text: str | None = "auto"
    is_auto = True

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`."""
        best = _plain(stages)
        for attempt in self._without_settings(stages):
            if stages.settings:
                best = attempt if attempt.name == stages.wanted else best
                continue
            yield attempt
            best = _better(stages, best, attempt)
        if stages.settings:
            for name in stages.settings:
                best = _with_setting(best, name) or best
            yield best
        elif self._may_have_settings(stages, best):
            for name in settings_for(stages.module):
                tried = _with_setting(best, name)
                if tried is not None:
                    yield tried
                    best = _better(stages, best, tried)

    def _may_have_settings(self, stages: Stages, best: Attempt) -> bool:
        """Whether to try the fastest version with other options, too."""
        if stages.wanted or not stages.compares or best.decided.engine == "wheel":
            return False
        if _calls_python(stages.module):  # each run of it would
            return False
        # Of loops and branches, no process could keep what is found.
        if stages.has_while or stages.has_cond or stages.is_later:
            return False
        return can_keep_compiled(stages.lowered)

    def _without_settings(self, stages: Stages) -> Iterator[Attempt]:
        """Those with the code that jaxlib generates by default."""
        module = stages.module
        if stages.wanted.startswith(_ONLY):
            rules = stages.wanted.removeprefix(_ONLY).split()
            yield from self._forms_of_rules(stages, rules)
            return
        is_plain = stages.wanted in (_PLAIN, _WHEEL, _WHEEL_AS_IT_IS)
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
        else:
            kernels = replace(kernels, prepare=functools.partial(_worth_it, stages))
        both = None
        if forms is not None and kernels.replace is not None:
            both = replace(forms, name=_BOTH, replace=kernels.replace)
        if both is not None and stages.compares:
            # Four programs with loops of train and validation have both; none of
            # them is faster by both, nor by kernels.
            yield kernels
            if stages.wanted == _BOTH or stages.gained.get(kernels.name):
                yield both
        elif both is not None:  # the first that can be used is
            yield from self._without_library(stages, both)
        yield from self._without_library(stages, forms)
        if both is not None and not stages.compares:
            yield both
        if forms is not None:
            yield forms
        # Neither is faster in all programs: small convolutions are slower by its calls.
        yield from self._by_onednn(stages)
        if forms is None or not stages.compares:
            yield kernels
        may_be_alone = forms is not None and forms.name not in stages.unchanged
        if forms is not None and may_be_alone and not any(stages.gained.values()):
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
            rules = forms.decided.accepted.keys()
            if OF_LIBRARY in rules:
                forms = self._forms(stages, rules - {OF_LIBRARY})
            if forms is not None:
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
            prepare = functools.partial(_compiled, stages)
            yield Attempt(name, decided, prepare=prepare)
        # Steps in sequence may lose on several cores.
        if may_be_plain and not stages.gained.get(name):
            prepare = functools.partial(_compiled, stages)
            yield Attempt(_WHEEL_AS_IT_IS, as_it_is, prepare=prepare)

    def _by_onednn(self, stages: Stages) -> Iterator[Attempt]:
        """What is faster there by oneDNN: convolutions, products of bf16; and forms."""
        if not stages.compares or stages.wanted not in ("", _BY_ONEDNN):
            return
        if not _may_call_onednn(stages.module):
            return
        decided = None if _calls_python(stages.module) else calls_of(stages.module)
        if decided is None:
            return
        if is_cache_on():
            yield Attempt(_BY_ONEDNN, decided, reason=CACHE_IS_ON)
            return
        if not has_onednn():
            return
        try:
            call = call_module(decided.applied, stages.traced, stages.lowered)
        except CompileError as error:
            yield Attempt(_BY_ONEDNN, decided, reason=str(error))
            return
        yield Attempt(_BY_ONEDNN, decided, call, is_promising=True)

    def _without_library(
        self, stages: Stages, forms: Attempt | None
    ) -> Iterator[Attempt]:
        """Where that is estimated to be faster, with less of jaxlib's library."""
        forms = forms or _plain(stages)
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
        first = [each for each in rules if each in _FIRST]
        if 1 < len(first) < len(rules):
            yield from self._forms_of_rules(stages, first)
            if stages.gained.get(_ONLY + " ".join(first)):
                return
        for rule in rules[:_MAX_ALONE]:
            yield from self._forms_of_rules(stages, [rule])
        faster = [each for each in rules if stages.gained.get(_ONLY + each)]
        if 1 < len(faster) < len(rules) and faster != first:
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


def _may_call_onednn(module: HloModule) -> bool:
    """Whether a module has operations that may be faster by oneDNN."""
    counts = module.opcode_counts()
    if "convolution" in counts:
        return True
    return "dot" in counts and "bf16[" in module.to_text(all_constants=False)


def _plain(stages: Stages) -> Attempt:
    undecided = Decided(stages.module, stages.module, route="stablehlo")
    return Attempt(_PLAIN, undecided)


def _better(stages: Stages, best: Attempt, tried: Attempt) -> Attempt:
    """The faster of two attempts; the first, if it was not tried, is plain."""
    gained = stages.gained
    is_better = gained.get(tried.name, 0.0) > gained.get(best.name, 1.0)
    return tried if is_better else best


def _with_setting(attempt: Attempt, name: str) -> Attempt | None:
    """The attempt with one of `SETTINGS` more; None if that computes something else."""
    options = {**attempt.options, **SETTINGS[name]}
    if are_wrong(attempt.decided.applied, options):
        return None
    texts = [f"{option}={value}" for option, value in SETTINGS[name].items()]
    known = [attempt.decided.options] if attempt.decided.options else []
    return replace(
        attempt,
        name=f"{attempt.name}{name}",
        decided=replace(attempt.decided, options=", ".join(known + texts)),
        options=options,
        min_ns=attempt.min_ns or min_ns_of(attempt.decided.applied),
    )


def _order(rule: str, decided: Decided) -> tuple[int, int]:
    return _FIRST.get(rule, len(_FIRST)), -decided.accepted[rule]


def _are_used(stages: Stages) -> bool:
    """Whether all forms together are clearly faster, or were in another process."""
    together = any(
        gain and name.split("_")[0] == "forms" for name, gain in stages.gained.items()
    )
    return together or stages.wanted == _WHEEL_FORMS


def _compiled(stages: Stages, attempt: Attempt) -> Attempt:
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


def calls_of(module: HloModule) -> Decided | None:
    """The module with calls of oneDNN, and other forms of its other operations.

    Args:
        module: as jax lowers it.

    Returns:
        None if no call is known to be faster.
    """
    passes, name = _CALLS
    whole = _prepared(module)
    calls = decide(whole, get_policy(name), as_pipelines(passes), route="stablehlo")
    if not calls.num_accepted:
        return None
    forms = forms_of(calls.applied)
    if forms is None:
        return replace(calls, module=module)
    return replace(
        forms,
        module=module,
        num_alternatives=calls.num_alternatives + forms.num_alternatives,
        accepted=Counter(calls.accepted) + Counter(forms.accepted),
    )


def first_passes(module: HloModule) -> tuple[str, ...]:
    """Those of XLA's first passes that rules need.

    A gradient gets what the function itself has computed, such as weights, as arguments
    of a call.
    """
    # Without calls the elements of a root, such as a sort, stay, which rules replace.
    return INLINING if module.opcode_counts().get("call") else ("cse",)


def _prepared(module: HloModule) -> HloModule:
    return run_passes(module, *first_passes(module)).module


def forms_of(module: HloModule, rules: Container[str] | None = None) -> Decided | None:
    """The module with other forms of its operations; None if no rule applies.

    Args:
        module: as jax lowers it.
        rules: only these, such as "dot-forms/swapped"; None for all.
    """
    passes, name = _FORMS
    policy = get_policy(name)
    if rules is not None:
        policy = only_rules(policy, rules.__contains__)
    decided = decide(_prepared(module), policy, as_pipelines(passes), route="stablehlo")
    return replace(decided, module=module) if decided.num_accepted else None


def _worth_it(stages: Stages, kernels: Attempt) -> Attempt:
    """As kernels that save enough of a call, whose time is known then."""
    # With other options, it has been compiled without them.
    is_safe = stages.is_safe or bool(stages.gained.get(split_name(kernels.name)[0]))
    min_gain_ns = _MIN_SAVED * stages.plain_ns()
    of_loops = functools.partial(kernels_of, is_safe=is_safe, min_gain_ns=min_gain_ns)
    return replace(kernels, replace=of_loops, prepare=None)


def kernels_of(
    theirs: HloModule, *, is_safe: bool, min_gain_ns: float = 0.0
) -> Decided:
    """Decides the loops of a module of jaxlib's: those of small operations.

    Args:
        theirs: in front of jaxlib's scheduler.
        is_safe: whether the result is known to compile.
        min_gain_ns: what they must save of a call, by estimate.

    Raises:
        NotReplacedError: no rule applies, or the result does not compile.
    """
    policy = SmallLoops(min_gain_ns=min_gain_ns)
    decided = decide(theirs, policy, as_pipelines(_KERNELS), route="jaxlib")
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


def _calls_python(module: HloModule) -> bool:
    """Whether it has custom calls of functions that only jax keeps alive."""
    targets = (each[0] for each in core.custom_call_targets(module._core))
    return any("callback" in target for target in targets)
