# SPDX-License-Identifier: Apache-2.0
"""Decides which version of a function runs for a signature.

A version is compiled, its outputs are compared with those of plain jax.jit, and both
are timed in turns. What another process found best is used without that.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ArtefactError, HloEnvError, ParseError
from ..rewrite.trace import ModuleId
from ..runtime.jaxlib.package import require_jax
from .artefact import Artefact, Tuned
from .attempts import Attempt, Planner, has_options
from .compare import ALL_NAN, Running
from .considered import Considered
from .decide import (
    KEEPS_DONATED,
    LATER_OPTIONS,
    RANDOM_STATE,
    UNSHAREABLE,
    Decided,
    other_devices,
    unsupported,
)
from .executables import compile_attempt, keep_executable
from .kept import is_faster, kept_key, recall_tuned
from .lowering import lower_traced
from .onednn import is_cache_on
from .recipe import Recipe
from .replacements import Replacements
from .settings import split_name
from .shared import SharedExecutables
from .stages import Stages
from .timed_call import TimedCall
from .trials import Trial, fastest, much_faster, verdict_of
from .verdicts import Verdict, key_of, recall, remember
from .wrapping import (
    DonationWarning,
    Options,
    Wrapped,
    calls,
    name_of,
    named,
    types_of,
)

# Of a function; jax's own caches of calls have 4096 to 8192 entries.
_MAX_SIGNATURES = 4096
# Times the budget: no further attempt starts after so long, and if none has gained.
_MAX_BUDGETS, _MAX_IN_VAIN = 120, 30
# After so long, nothing is compiled with other options of the code generator.
_MAX_OPTION_BUDGETS = 30
# Times the budget: a function is left alone for whose last arguments deciding has taken
# so long, all for nothing.
_MAX_WASTED = 120
_WASTED = (
    "deciding for the last other arguments has taken {:.0f} s and found nothing: a "
    "function that is called with ever new shapes is left to jax.jit"
)


def _unreadable(stages: Stages) -> str | None:
    """Why the module of a function cannot be decided; None if it can."""
    try:
        return RANDOM_STATE if stages.facts.draws_random else None
    except ParseError as error:  # an operation of a later XLA
        return f"hloenv cannot read its module: {error}"


class Decider:
    """Decides the signatures of one function; callers must not run concurrently.

    Attributes:
        considered: the last decided versions, used or not.
        plans: what the trace of each decided signature calls.
        planner: proposes versions.
        replacements: of jaxlib's modules.
        shared: what is compiled, for other functions of jax.jit.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        plain: Any,
        inside: Any,
        wrapped: Wrapped,
        *,
        planner: Planner,
        budget: float,
        remember: bool,
        options: Options,
        tuned: Artefact | None = None,
    ) -> None:
        self._jax = require_jax("hloenv.jit")
        self.considered = Considered()
        self.plans: dict[Any, Callable[..., Any]] = {}
        self.planner = planner
        self.replacements = Replacements()
        self.shared = SharedExecutables(plain)
        self._fn = fn
        self._plain = plain
        # The same for a trace, which is in another function of jax.jit.
        self._inside = inside
        self._wrapped = wrapped
        self._budget = budget
        self._remembers = remember and planner.is_auto and budget > 0
        self._options = options
        self._tuned = tuned
        self._last: tuple[Any, Stages | None] = (None, None)
        # Signatures that have been called on other devices only.
        self._elsewhere: set[Any] = set()
        # What the function was traced to, when a signature was decided.
        self._jaxprs: dict[Any, weakref.ref[Any]] = {}
        self._is_deciding = False
        self._is_later = False
        # Of deciding signatures that stay plain.
        self._wasted_s = 0.0

    def clear(self) -> None:
        """Forgets all decisions."""
        self.plans.clear()
        self._elsewhere.clear()
        self._jaxprs.clear()
        self.shared.clear()
        self._wasted_s = 0.0
        self.replacements.clear()
        self.considered.clear()

    def is_new(self, signature: Any) -> bool:
        """Whether a signature is to be considered."""
        is_elsewhere = bool(self._budget) and signature in self._elsewhere
        return is_elsewhere or signature not in self.plans

    def forget_if_changed(self, signature: Any, traced: Any) -> None:
        """Forgets the plan of a signature whose function is traced to another program.

        As after `jax.clear_caches()`, where what the function refers to has changed.

        Args:
            signature: as in `consider`.
            traced: a `jax.stages.Traced` of the plain function.
        """
        known = self._jaxprs.get(signature)
        # Where jax looks for leaks, it caches no traces.
        if self._is_deciding or self._jax.config.jax_check_tracer_leaks:
            return
        if known is not None and known() is not traced.jaxpr:
            self.plans.pop(signature, None)
            self.shared.forget(signature)
            del self._jaxprs[signature]

    def is_known(
        self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Whether an earlier process found what is best for these arguments."""
        try:
            stages = self._stages(signature, args, kwargs)
            leaves = self._jax.tree.leaves((args, kwargs))
            if unsupported(self._jax, stages.traced, stages.lowered, leaves):
                return False
            if self._tuned is not None or self._kept(stages) is not None:
                return True
            key = self._key(stages)
        except Exception:  # `consider` says what it is, after a plain call
            return False
        return key is not None and recall(key) is not None

    def _stages(
        self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Stages:
        """As traced before, if the last call was for the same signature."""
        known, stages = self._last
        self._last = (None, None)
        if stages is None or known != signature:
            traced = self._plain.trace(*args, **kwargs)
            stages = Stages(traced, remember=self._remembers, compares=self._budget > 0)
            self._last = (signature, stages)
        return stages

    def consider(
        self,
        signature: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        running: Running | None = None,
        is_later: bool = False,
    ) -> Any:
        """Decides which function the trace of a signature calls.

        Args:
            signature: of the arguments.
            args: of the call.
            kwargs: of the call.
            running: a call of the plain function with these arguments; None if there
                was none.
            is_later: whether a function of jax.jit for decided signatures is in use.

        Returns:
            A compiled function with the decisions; None for the plain function.
        """
        self._is_later = is_later
        self._forget_oldest()
        self.plans[signature] = self._inside
        self._elsewhere.discard(signature)
        stages = self._stages(signature, args, kwargs)
        self._last = (None, None)
        self._jaxprs[signature] = weakref.ref(stages.traced.jaxpr)
        leaves = self._jax.tree.leaves((args, kwargs))
        reason = unsupported(self._jax, stages.traced, stages.lowered, leaves)
        if reason is None:
            reason = _unreadable(stages)
        if reason is not None:
            if reason == other_devices(self._jax, stages.lowered, leaves):
                self._elsewhere.add(signature)
            self.considered.leave_alone(stages, reason)
            if not self.planner.is_auto:  # which promises nothing
                self._wrapped.fall_back(reason)
            return None
        self._is_deciding = True
        try:
            call = TimedCall(
                *(self._plain, args, kwargs),
                donates=self._options.donates,
                budget=self._budget,
            )
            function = self._decide(signature, stages, call, running)
        finally:
            self._is_deciding = False
        if function is None:
            self.shared.note_plain(signature, (args, kwargs))
        else:
            self._wasted_s = 0.0
        return function

    def _decide(
        self,
        signature: Any,
        stages: Stages,
        call: TimedCall,
        running: Running | None,
    ) -> Any:
        """As `consider`, for one CPU device and a function without side effects."""
        key = self._key(stages)
        verdict = None if key is None else recall(key)
        tuned = self._kept(stages)
        # The rules may be faster than what was tuned, whose search had its own limits.
        if tuned is not None and (self._tuned or not is_faster(verdict, tuned)):
            return self._use_tuned(signature, stages, tuned, call, running)
        if verdict is not None and not verdict.attempt:
            reason = f"{verdict.reason} (found on {verdict.date})"
            self.considered.leave_alone(stages, reason)
            return None
        if verdict and has_options(verdict.attempt) and self._is_later:
            verdict = None  # it may not have options: others are compared
        if verdict is not None:
            stages.wanted, stages.settings = split_name(verdict.attempt)
        if verdict is not None and stages.has_cond:
            verdict = None  # it was timed with other values, in another branch
        if verdict is None and self._wasted_s > _MAX_WASTED * self._budget > 0:
            self.considered.leave_alone(stages, _WASTED.format(self._wasted_s))
            return None
        stages.is_later = self._is_later
        num_considered = len(self.considered)
        too_long: str | None = None if self._budget and verdict is None else ""
        trials: list[Trial] = []
        began = time.monotonic()
        try:
            for attempt in self.planner.attempts(stages):
                reason = attempt.reason or self._no_options(attempt, call)
                if reason:
                    self.considered.leave(attempt.decided, reason)
                    continue
                if too_long is None:
                    stages.plain_ns = lambda: call.plain_ns
                    too_long = call.too_long(
                        stages, running, is_promising=attempt.is_promising
                    )
                    running = None
                if too_long:
                    self.considered.leave(attempt.decided, too_long)
                    break
                limit = self._limit(stages)
                if trials and self._budget and time.monotonic() > began + limit:
                    reason = f"deciding has taken longer than its limit of {limit:g} s"
                    self.considered.leave(attempt.decided, reason)
                    break
                is_late = time.monotonic() > began + _MAX_OPTION_BUDGETS * self._budget
                if verdict is None and attempt.decided.options and is_late:
                    continue
                if verdict is None and call.is_short_for(attempt):
                    continue
                started = time.monotonic()
                if verdict is None or attempt.name == verdict.attempt:
                    tried = self._try(
                        *(signature, attempt, verdict, call),
                        can_loop=stages.has_while,
                        than=much_faster(trials),
                    )
                    trials.append(tried)
                    stages.gained[attempt.name] = tried.worth
                    if tried.changes_nothing:
                        stages.unchanged.add(attempt.name)
                    # Not for nothing, as it says nothing of other shapes.
                    if attempt.decided.options:
                        self._wasted_s -= time.monotonic() - started
                    if not self._budget and trials[-1].is_usable:
                        break
            best = self._choose(signature, trials, call)
        except BaseException:  # such as Ctrl-C
            for each in trials:
                each.free()
            raise
        finally:
            self._wasted_s += time.monotonic() - began
        self.considered.sign(num_considered, stages)
        is_fault = any(each.is_fault or each.reason == ALL_NAN for each in trials)
        # Another process may call it with values for which its loops run longer, or
        # another branch.
        is_of_values = stages.has_cond or (best is None and stages.has_while)
        is_of_values = is_of_values and bool(trials or too_long)
        # Of this function in this process.
        is_left_out = any(
            each.reason == LATER_OPTIONS for each in self.considered[num_considered:]
        )
        is_kept = not (is_fault or is_of_values or is_left_out)
        if key and verdict is None and is_kept:
            remember(key, verdict_of(best, self.considered[num_considered:]))
            if best is not None and best.keep is not None:
                best.keep()
        return None if best is None else best.function

    def _limit(self, stages: Stages) -> float:
        """Seconds after which no further attempt starts."""
        has_gained = any(stages.gained.values())
        return self._budget * (_MAX_BUDGETS if has_gained else _MAX_IN_VAIN)

    def _no_options(self, attempt: Attempt, call: TimedCall) -> str:
        """Why an attempt's options of the compiler are not used; empty if they are."""
        given = self._options.given.get("compiler_options") or {}
        if both := sorted(attempt.options.keys() & given.keys()):
            return f"{both[0]} is given"
        if given and attempt.decided.engine == "wheel":
            return f"{min(given)} is given, an option of jaxlib's compiler"
        if attempt.options and self._is_later:
            return LATER_OPTIONS
        if attempt.options:
            try:
                types_of(self._jax, (call.args, call.kwargs))
            except Exception:  # of a pytree that checks its leaves
                return UNSHAREABLE
        return ""

    def _kept(self, stages: Stages) -> Tuned | None:
        """What `hloenv.tune` has found for these arguments; None if nothing."""
        if self._tuned is not None:
            try:
                return self._tuned.find(stages.module)
            except ArtefactError as error:
                module = stages.module
                return Tuned("", ModuleId.of(module), Recipe(), reason=str(error))
        if (
            not self._remembers or self.planner.text is None
        ):  # it proposes what is yet to be measured
            return None
        key = kept_key(
            stages.facts.fingerprint, self._options.compiling, donates=stages.donates
        )
        found = recall_tuned(key)
        # A search that found nothing does not speak against the rules of "auto", which
        # are compared.
        if found is not None and found.is_identity and self.planner.text == "auto":
            return None
        return found

    def _use_tuned(
        self,
        signature: Any,
        stages: Stages,
        tuned: Tuned,
        call: TimedCall,
        running: Running | None,
    ) -> Any:
        """Compiles what was tuned; as `consider`."""
        num_considered = len(self.considered)
        best = None
        if tuned.is_identity:
            words = "nothing" if tuned.date else ""  # without, it is not for this call
            self.considered.leave(
                Decided(stages.module, stages.module, tuned=words), tuned.reason
            )
            if self._tuned is not None and not words:
                self._wrapped.fall_back(tuned.reason)
        else:
            verdict = Verdict(
                "tuned", "", tuned.speedup, tuned.interval, date=tuned.date
            )
            stages.wanted = verdict.attempt
            # How long its loops run may depend on the values, which are others here.
            is_sure = self._tuned is not None or not (
                stages.has_while or stages.has_cond
            )
            reason = "" if is_sure else call.too_long(stages, running)
            if reason:
                self.considered.leave_alone(stages, reason)
                return None
            try:
                attempt = tuned.recipe.attempt(stages, label=tuned.label)
                trial = self._try(
                    *(signature, attempt, verdict if is_sure else None, call),
                    can_loop=stages.has_while,
                )
                best = self._choose(signature, [trial], call)
            except HloEnvError as error:
                self.considered.leave(Decided(stages.module, stages.module), str(error))
                self._wrapped.fall_back(f"what was tuned is not used: {error}")
        self.considered.sign(num_considered, stages)
        return None if best is None else best.function

    def _key(self, stages: Stages) -> str | None:
        """Identifies the decisions in other processes; None if none are kept."""
        if not self._remembers or self.planner.text != "auto":
            return None
        others = {"donates": stages.donates, **self._options.compiling}
        if is_cache_on():  # then fewer versions are tried
            others["cache"] = True
        return key_of(stages.facts.fingerprint, self._budget, others)

    def _try(
        self,
        signature: Any,
        attempt: Attempt,
        verdict: Verdict | None,
        call: TimedCall,
        *,
        can_loop: bool,
        than: Trial | None = None,
    ) -> Trial:
        """Compiles one decided version, and compares it if there is no verdict.

        Args:
            signature: of the arguments.
            attempt: the version.
            verdict: of an earlier comparison.
            call: for which it is decided.
            can_loop: whether values decide how long a call takes.
            than: what it must be faster than; None for plain jax.jit.
        """
        if attempt.prepare is not None:
            attempt = attempt.prepare(attempt)
            if attempt.reason:  # its module may be none that can be named
                return Trial(
                    *(attempt.name, attempt.decided, self._inside, None),
                    reason=attempt.reason,
                )
        plan = self._plan(attempt)
        self.plans[signature] = plan
        function = self._wrapped.new_function()
        trial = Trial(
            *(attempt.name, attempt.decided, plan, function),
            reason=attempt.reason,
            discard=attempt.discard,
        )
        if trial.reason:
            self.plans[signature] = self._inside
            return trial
        try:
            lowered = lower_traced(function.trace(*call.args, **call.kwargs))
            trial.lowered = lowered if attempt.options else None
            if attempt.replace is not None:
                if self._options.donates:
                    self._wrapped.warn(DonationWarning, KEEPS_DONATED)
                trial.compiled(
                    self.replacements.compile(attempt.replace, lowered, attempt.options)
                )
            else:
                compiling = self._options.compiling
                is_best = verdict is not None and self._remembers
                compile_attempt(attempt, lowered, compiling, is_best=is_best)
                trial.keep = functools.partial(
                    keep_executable, attempt, lowered, compiling
                )
            trial.check_products(lowered)
            if trial.is_usable and verdict is not None:
                trial.recalled(verdict)
            elif trial.is_usable and self._budget:
                faster = than.as_faster(call.by(than.function)) if than else None
                # With other values, a loop may never end.
                trial.compared(
                    call.compare(
                        function,
                        has_values=not can_loop,
                        is_promising=attempt.is_promising,
                        than=faster,
                    )
                )
        except BaseException:
            trial.free()
            raise
        finally:
            self.plans[signature] = self._inside
        return trial

    def failed(
        self,
        signature: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: str,
    ) -> None:
        """Notes that a signature is plain, as `consider` failed."""
        self.plans[signature] = self._inside
        with contextlib.suppress(Exception):  # it cannot be lowered
            stages = self._stages(signature, args, kwargs)
            self._last = (None, None)
            self.considered.leave_alone(stages, reason)

    def share_compiled(self, function: Any) -> None:
        """As of `SharedExecutables`, in the trace of another signature."""
        self._is_deciding = True
        try:
            self.shared.share_compiled(function)
        finally:
            self._is_deciding = False

    def _choose(
        self,
        signature: Any,
        trials: list[Trial],
        call: TimedCall,
    ) -> Trial | None:
        """Uses the fastest of the versions, and leaves the others."""
        best = fastest(trials)
        for each in trials:
            if each is best:
                continue
            if each.replaced is not None:
                self.replacements.leave(each.replaced)
            each.free()
            self.considered.leave(
                each.decided, each.reason or "another version is faster"
            )
        if best is None:
            self._warn_of_faults(trials)
            return None
        self.shared.forget(signature)
        if best.lowered is not None:
            try:
                types = types_of(self._jax, (call.args, call.kwargs))
            except Exception:  # what was tuned, of a pytree that checks its leaves
                if best.replaced is not None:
                    self.replacements.leave(best.replaced)
                self.considered.leave(best.decided, UNSHAREABLE)
                self._warn_of_faults(trials)
                return None
            self.shared.keep(signature, types, best.lowered.compile())
        if best.replaced is not None:
            self.replacements.use(best.replaced)
        self.plans[signature] = best.plan
        self.considered.append(best.decided)
        return best

    def _warn_of_faults(self, trials: Iterable[Trial]) -> None:
        """Of a signature that stays plain."""
        for reason in dict.fromkeys(each.reason for each in trials if each.is_fault):
            self._wrapped.fall_back(reason)

    def _forget_oldest(self) -> None:
        """Limits what is kept of signatures; those in use need their plans."""
        del self.considered[:-_MAX_SIGNATURES]
        if len(self.plans) >= _MAX_SIGNATURES:
            plain = (key for key, plan in self.plans.items() if plan is self._inside)
            oldest = next(plain, None)
            if oldest is not None:
                del self.plans[oldest]
                self._jaxprs.pop(oldest, None)

    def _plan(self, attempt: Attempt) -> Callable[..., Any]:
        """What the trace calls, under a name unique in jax's persistent cache.

        The cache does not know what replaces a module of jaxlib's.
        """
        module = attempt.decided.result.fingerprint()
        kind = attempt.name.split()[0]
        name = f"{name_of(self._fn)}_{kind}_{module}"
        function = attempt.function or calls(self._inside)
        return self._jax.jit(  # type: ignore[no-any-return]
            named(self._fn, function, name), **self._options.static
        )
