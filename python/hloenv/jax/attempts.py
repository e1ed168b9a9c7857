# SPDX-License-Identifier: Apache-2.0
"""The ways in which one signature may be compiled other than by plain jax.jit.

A decided module goes back into jax by one of three routes:

* "stablehlo": decisions on the module as jax lowers it. jaxlib compiles the result
  with its whole pipeline.
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
from ..errors import ArgumentError, ArgumentTypeError, CompileError, MeasureTimeout
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline, run_passes
from ..hlo.pipeline import finish
from ..policies import Policy, get_policy
from ..policies.known_forms import FORM_PASSES
from ..process import child
from ..rewrite.alternatives import Alternatives
from ..runtime.executable import compile
from ..runtime.jaxlib.ffi_call import call_executable, discard_executable
from ..runtime.jaxlib.options import OptionValue
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import call_function, call_module
from .decide import (
    Decided,
    Passes,
    as_pipelines,
    check_compiles,
    decide,
    has_equation,
    label_of,
)
from .facts import Facts, key_of_lowered, recall_facts, remember_facts
from .flat import from_flat, to_flat
from .library import left_out_of, options_for
from .lowering import from_lowered, lower_traced
from .replacements import NotReplacedError, Replace


class Stages:
    """A function for one signature, as jax has it.

    Attributes:
        traced: a `jax.stages.Traced`.
        lowered: the `jax.stages.Lowered` of that.
        wanted: name of the attempt that another process found best; empty if unknown.
        usable: whether the attempts that have been tried may be used, by name.
        compares: whether what is tried is compared with plain jax.jit.
    """

    def __init__(
        self, traced: Any, *, remember: bool = False, compares: bool = True
    ) -> None:
        """Lowers it.

        Args:
            traced: a `jax.stages.Traced`.
            remember: whether `facts` are kept for other processes.
            compares: whether what is tried is compared with plain jax.jit.
        """
        self.traced = traced
        self.compares = compares
        self._remember = remember
        self.lowered = lower_traced(traced)
        self.wanted = ""
        self.usable: dict[str, bool] = {}

    @property
    def is_safe(self) -> bool:
        """Whether the result has been compiled before, in another process."""
        return bool(self.wanted)

    @property
    def donates(self) -> bool:
        """Whether the function donates arguments."""
        leaves = require_jax("hloenv.jit").tree.leaves(self.lowered.args_info)
        return any(each.donated for each in leaves)

    @property
    def has_while(self) -> bool:
        """Whether there are loops whose number of iterations depends on values."""
        # Loops of other numbers of iterations are "scan" in jax.
        return self._has("while") or self._hidden[0]

    @property
    def has_cond(self) -> bool:
        """Whether there are branches, of which values choose one."""
        return self._has("cond") or self._hidden[1]

    @functools.cached_property
    def _hidden(self) -> tuple[bool, bool]:
        """Loops and branches of functions that are one operation of the trace."""
        if not any(map(self._has, _OPAQUE)):
            return False, False
        counts = self.module.opcode_counts()
        has_while = "while" in counts and not _have_known_trip_counts(self.module)
        return has_while, "conditional" in counts

    @property
    def has_scan(self) -> bool:
        """Whether there are loops of a known number of iterations, jax's own aside.

        Random numbers are drawn in one.
        """
        is_hidden = any(map(self._has, _OPAQUE)) and _has_loops(self.module)
        return self._has("scan") or is_hidden

    def _has(self, name: str) -> bool:
        return has_equation(self.traced.jaxpr, lambda each: each.primitive.name == name)

    @functools.cached_property
    def module(self) -> HloModule:
        """As jax lowers it, without donations."""
        return from_lowered(self.lowered, donations=False)

    @functools.cached_property
    def facts(self) -> Facts:
        """Of `module`; without it, if another process has kept them."""
        key = key_of_lowered(self.lowered) if self._remember else None
        found = None if key is None else recall_facts(key)
        if found is None:
            found = Facts.of(self.module)
            if key is not None:
                remember_facts(key, found)
        return found


# Operations of a trace that are whole functions: of jax.export, and of hloenv.load.
_OPAQUE = ("call_exported", "hloenv_call")


def _have_known_trip_counts(module: HloModule) -> bool:
    """Whether the number of iterations of each loop is in the module."""
    from ..graph.hlo_graph import HloGraph, opcodes

    graph = HloGraph.from_module(module)
    is_while = graph.opcode == opcodes().index("while")
    return bool((graph.trip_count[is_while] >= 0).all())


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
    """

    name: str
    decided: Decided
    function: Callable[..., Any] | None = None
    replace: Replace | None = None
    reason: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    prepare: Callable[[], Attempt] | None = None
    discard: Callable[[], None] | None = None


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
# For the compilation of a module with kernels in a child process.
_COMPILE_TIMEOUT_S = 60.0
_WHEEL = "wheel"
# Rules that are tried alone where all together are not faster.
_MAX_ALONE = 4
_ONLY = "forms of "
# Ends the names of attempts with options of the compiler.
WITH_OPTIONS = "_library"
# A rule that makes loops, whose state needs copies; jaxlib has inserted its own before.
_NEEDS_COPIES = "plain_scatters"


class Auto:
    """hloenv's fixed rules; routes "stablehlo" and "jaxlib", and one option."""

    text: str | None = "auto"
    is_auto = True

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`."""
        module = stages.module
        if stages.wanted.startswith(_ONLY):
            rules = stages.wanted.removeprefix(_ONLY).split()
            yield from self._forms_of_rules(stages, rules)
            return
        if stages.wanted == _WHEEL:
            yield from self._by_wheel(stages)
            return
        forms = self._forms(stages)
        if forms is not None and forms.reason:
            yield forms
            return
        kernels = Attempt(
            "kernels",
            Decided(module, module, route="jaxlib"),
            replace=functools.partial(kernels_of, is_safe=stages.is_safe),
        )
        if stages.donates or not _has_loops(module):
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
        if not any(stages.usable.values()):
            yield from self._by_wheel(stages)

    def _by_wheel(self, stages: Stages) -> Iterator[Attempt]:
        """Where there are loops, the code that the wheel's XLA generates.

        Which of the two is faster cannot be estimated: it is compared or not used. Not
        where values decide what runs: another compiler's code is not only faster or
        slower in what the comparison has run.
        """
        if stages.donates or stages.has_while or stages.has_cond:
            return
        if not stages.has_scan or not (stages.compares or stages.wanted == _WHEEL):
            return
        decided = Decided(
            stages.module, stages.module, route="stablehlo", engine="wheel"
        )
        attempt = Attempt(_WHEEL, decided)

        def prepare() -> Attempt:
            try:
                function, discard = compiled_by_wheel(
                    stages.module, stages, is_safe=stages.is_safe
                )
            except (CompileError, MeasureTimeout) as error:
                return replace(attempt, reason=str(error))
            return replace(attempt, function=function, discard=discard)

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
        """Each rule of `every` alone, then those together that are faster alone."""
        rules = sorted(every.accepted, key=lambda rule: -every.accepted[rule])
        if len(rules) == 1:
            return
        for rule in rules[:_MAX_ALONE]:
            yield from self._forms_of_rules(stages, [rule])
        faster = [each for each in rules if stages.usable.get(_ONLY + each)]
        if 1 < len(faster) < len(rules):
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
        return Attempt("forms", decided, call)


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


def compiled_by_wheel(
    module: HloModule, stages: Stages, *, is_safe: bool
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """The function of `stages` as a call of an executable of the wheel's XLA.

    Args:
        module: of the function.
        stages: whose arguments and results it has.
        is_safe: whether it is known to compile.

    Returns:
        The function, and one that frees the executable, if no function of jax that
        calls it is kept.

    Raises:
        CompileError: XLA cannot compile it.
        MeasureTimeout: it takes too long to compile.
    """
    jax = require_jax("hloenv.jit")
    if not is_safe:
        child.try_compile(module.to_bytes(), "legalize", timeout_s=_COMPILE_TIMEOUT_S)
    executable = compile(module, isolate=False)
    run = call_executable(executable)
    avals = stages.traced.jaxpr.out_avals

    def flat(*leaves: Any) -> list[Any]:
        results = run(*(to_flat(jax, leaf) for leaf in leaves))
        return from_flat(jax, results, avals)

    function = call_function(flat, module, stages.traced, stages.lowered)
    return function, functools.partial(discard_executable, executable)


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
            check_compiles(decided.result, timeout_s=_COMPILE_TIMEOUT_S)
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


def _has_loops(module: HloModule) -> bool:
    return module.opcode_counts().get("while", 0) > 0


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
