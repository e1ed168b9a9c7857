# SPDX-License-Identifier: Apache-2.0
"""jax.jit with decisions: lower, decide, compare, and let jaxlib compile the result.

A `JitFunction` calls plain jax.jit until a decided version of some signature is used;
new signatures are detected as new entries of jax's call cache. From then on, calls go
to one jax.jit function whose trace looks up the version of its signature, so that jax
serves all later calls from its own caches.
"""

from __future__ import annotations

import functools
import os
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Literal, overload

from .._native import core
from ..errors import ArgumentError, DecisionError
from ..policies import Policy
from ..runtime.jaxlib.package import require_injection, require_jax
from .artefact import Artefact, as_artefact
from .attempts import Planner
from .compare import Running
from .decide import Decided, Passes
from .decider import Decider
from .dispatch import dispatcher, unique_name
from .explain import explain
from .numpy_calls import NumpyFunction
from .pickling import Pickled
from .planners import planner_of
from .wrapping import (
    Options,
    StaticArguments,
    calls,
    check_function,
    copy_metadata,
    leave_traces,
    level_of_user,
    name_of,
    named,
    signature_of,
    top_level_test,
)

_BUDGET = 0.5  # seconds of timing for each signature
# Calls that look for signatures that wait; each costs some 100 microseconds.
_MAX_WAITS = 1000


class FallbackWarning(UserWarning):
    """A function of hloenv.jit runs as plain jax.jit."""


@overload
def jit(
    fn: Callable[..., Any], *, outputs: Literal["jax"] = ..., **options: Any
) -> JitFunction: ...
@overload
def jit(
    fn: Callable[..., Any], *, outputs: Literal["numpy"], **options: Any
) -> NumpyFunction: ...
@overload
def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    policy: str | Policy = "auto",
    passes: Passes | None = None,
    until: str | None = "simplification",
    budget: float = _BUDGET,
    remember: bool = True,
    tuned: Artefact | str | os.PathLike[str] | None = None,
    outputs: Literal["jax", "numpy"] = "jax",
    **jit_options: Any,
) -> Any:
    """jax.jit, with a policy for XLA's rewrites if that is faster.

        @hloenv.jit
        def step(params, batch): ...

        @hloenv.jit(policy="fewest-ops", passes="algsimp", static_argnames="length")
        def sample(key, length): ...

    The first call with a new signature runs as under `jax.jit`. Then the function is
    lowered, the policy decides the rewrites of each pass, the rest of XLA's pipeline
    runs, jaxlib compiles the result, and both versions are timed interleaved with the
    call's arguments. Later calls use the decided version if its outputs are equal and
    it is clearly faster, and are plain `jax.jit` calls otherwise; both go through jax's
    own caches, without Python in front.

    If this is not possible (another device than one CPU, side effects, a policy or a
    pass that fails, a module that jaxlib rejects) the function runs as under `jax.jit`,
    and `explain()` has the reason. It is a `FallbackWarning` too if something failed,
    or if another policy than "auto" was asked for. Inside another transformation
    (`jax.jit`, `grad`, `vmap`) it is plain `jax.jit`: decide the outer function.

    Call this once for a function, not in each iteration of a loop: other than with
    `jax.jit`, each result compiles and decides for itself.

    Args:
        fn: as for `jax.jit`; without it, `jit` returns a decorator.
        policy: "tuned" for nothing but what `hloenv.tune` has found; "auto" for that
            and, elsewhere, hloenv's fixed rules (other forms of convolutions and small
            dots; loops of small operations as one kernel; what jaxlib's compiler gives
            to its library; functions with loops, and short ones, by the wheel's
            compiler; wider vectors, and LLVM's level 1), each used where it is measured
            to be faster; a name in `hloenv.policies.list_policies()`; or any function
            from `Alternatives` to decisions (-1 leaves an alternative undecided).
        passes: with another policy: one, or several that are decided in order, each on
            the result of the previous one; "algsimp" by default. A pass whose rewrites
            XLA's backend can only use after layout assignment ("fusion",
            "general-fusion") is decided before XLA's own fusion.
        until: with another policy: position in XLA's pipeline, as in
            `HloEnv.run_until`; None for the module as jax lowers it.
        budget: seconds for the timing of one version. With 0 nothing is compared or
            checked, and the decided version runs from the first call. Where one run
            takes longer, two runs of each version decide; beyond four budgets (forty
            with forms of "auto" that have made convolutions many times as fast), or
            with over 1 GiB of results or of donated arguments, nothing is compared; no
            version is tried after 120 budgets, nor for new arguments once so long was
            spent on others for nothing.
        tuned: what `hloenv.tune` has returned, or the path where it was saved: the
            decisions to use. Where it has none for the arguments, or was made on
            another machine or with other versions, the function runs as under
            `jax.jit`, with a `FallbackWarning`. Without it, what `hloenv.tune` has kept
            for these arguments on this machine is used.
        remember: whether what "auto" finds best is kept for other processes, in a
            folder beside the store, by module, machine and versions, with the code that
            jaxlib has compiled for it. They use it from the first call, without a
            comparison. Of functions with branches
            (`lax.cond`) nothing is kept: values choose what is timed.
        outputs: "numpy" for a function that is called often with small arrays: it takes
            numpy arrays and returns them, and its calls do without jax's dispatch,
            where that is clearly faster. It cannot be used inside jax's
            transformations, and nothing of it is kept for other processes.
        **jit_options: as for `jax.jit` (`static_argnums`, `donate_argnames`, ...).
            A function that donates is decided at its first call only, by "auto" only,
            and in the form of its operations and by options of the compiler only:
            jaxlib drops the donations of a module that is replaced after XLA's passes.
            With `budget=0`, another policy decides it nevertheless, and it keeps its
            arguments (`DonationWarning`).

    Raises:
        ArgumentError: `budget` is negative, or "auto" was given passes.
        ArtefactError: the file of `tuned` is not an artefact.
        ArgumentTypeError: `fn` or `policy` is not callable, `passes` are not passes, or
            numpy outputs are asked for with static or donated arguments, shardings or
            options of the compiler.
        ImportError: jax is missing or too old.
        UnknownPassError: no pass has this name.
        UnknownPolicyError: no policy has this name.
    """
    if not budget >= 0:
        raise ArgumentError(f"budget must be seconds >= 0, got {budget}")
    if outputs == "numpy":
        if policy != "auto" or passes is not None or tuned is not None:
            raise ArgumentError(
                "outputs='numpy' decides by policy='auto' only; to deploy other "
                "decisions, use hloenv.load"
            )
        numpy = functools.partial(NumpyFunction, budget=budget, jit_options=jit_options)
        return numpy if fn is None else numpy(fn)
    if outputs != "jax":
        raise ArgumentError(f"outputs must be 'jax' or 'numpy', got {outputs!r}")
    make = functools.partial(
        JitFunction,
        policy=policy,
        passes=passes,
        until=until,
        budget=budget,
        remember=remember,
        tuned=None if tuned is None else as_artefact(tuned),
        jit_options=jit_options,
    )
    return make if fn is None else make(fn)


class JitFunction(Pickled, core.JitCalls):
    """The result of `jit`: call it as the function.

    Its calls are in `csrc/bindings/jit_calls.h`, which says what runs when.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        policy: str | Policy | Planner,
        passes: Passes | None,
        until: str | None,
        budget: float,
        remember: bool,
        tuned: Artefact | None,
        jit_options: dict[str, Any],
    ) -> None:
        self._jax = jax = require_jax("hloenv.jit")
        require_injection("hloenv.jit")
        check_function(jax, fn, jit_options)
        # A separate function, as jax shares caches between uses of one function.
        inner = named(fn, calls(fn), name_of(fn))
        plain = jax.jit(inner, **jit_options)
        core.JitCalls.__init__(self, plain, top_level_test())
        copy_metadata(fn, self)
        self.__name__ = name_of(fn)
        self._plain = plain
        self._static = StaticArguments.of(plain)
        self._fn = fn
        self._made_with = (
            fn,
            {
                "policy": policy,
                "passes": passes,
                "until": until,
                "budget": budget,
                "remember": remember,
                "tuned": tuned,
                "jit_options": jit_options,
            },
        )
        self._budget = budget
        self._options = options = Options(jit_options)
        # jax.jit takes the options of the compiler for outermost functions only.
        self._inside = jax.jit(inner, **options.inside) if options.compiling else plain
        self._lock = threading.RLock()
        self._is_at_top_level = top_level_test()
        self._decider = Decider(
            fn,
            self._plain,
            self._inside,
            # Without a reference to this object, so that it is collected at once.
            weakref.proxy(self),
            planner=planner_of(policy, passes, until, always=not budget),
            budget=budget,
            remember=remember,
            tuned=tuned,
            options=self._options,
        )
        # Signatures whose calls found another thread deciding, and the calls after
        # which they are given up.
        self._waiting: set[Any] = set()
        self._num_waits = 0

    def _call_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._budget:
            return self._decide_first(args, kwargs)
        if self._decided_before_first(args, kwargs):
            return self(*args, **kwargs)
        outputs = self._plain(*args, **kwargs)
        self._consider_after(args, kwargs, outputs)
        return outputs

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method, like functions of jax.jit."""
        return self if instance is None else types.MethodType(self, instance)

    @property
    def considered(self) -> list[Decided]:
        """The decided versions, by signature, used or not."""
        return self._decider.considered

    @property
    def decided(self) -> list[Decided]:
        """The decided versions in use, one for each signature."""
        return [each for each in self.considered if each.is_used]

    def explain(self) -> str:
        """What was decided for each signature, why, and what it gained."""
        return explain(name_of(self._fn), self.considered)

    @property
    def num_injected(self) -> int:
        """Number of compilations that used a decided module.

        jax may compile one signature several times, as for arguments committed to a
        device.
        """
        return self._decider.replacements.count

    def __repr__(self) -> str:
        """Names the function."""
        return f"<hloenv.jit of {self._fn!r}>"

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`: without decisions."""
        return self._plain.lower(*args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`: without decisions."""
        return self._plain.trace(*args, **kwargs)

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._plain.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Clears all decisions and compiled versions."""
        with self._lock:
            self._decided = None
            self._plain.clear_cache()
            self._num_compiled = 0
            self._waiting.clear()
            self._waits = False
            self._decider.clear()

    def _decide_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Decides and runs the first call of a signature, without comparison."""
        if not self._has_values(args, kwargs):
            return self._plain(*args, **kwargs)
        signature = self._signature(args, kwargs)
        self._trace_plain(args, kwargs)
        with self._lock:
            if self._decided is None:
                if signature is not None:
                    self._decided = self._consider_safely(signature, args, kwargs)
                self._decided = self._decided or self.new_function()
        return self(*args, **kwargs)

    def _decided_before_first(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Decides the function's first call before it runs, where that is needed.

        If an earlier process found what is best, plain jax.jit need not compile. If the
        function donates, the arguments are gone afterwards.
        """
        if not self._decider.planner.is_auto or not self._has_values(args, kwargs):
            return False
        signature = self._signature(args, kwargs)
        self._trace_plain(args, kwargs)
        with self._lock:
            if self._decided is not None:
                return True
            self._num_compiled = -1
            if signature is None or not self._decider.is_new(signature):
                return False
            if self._options.donates or self._decider.is_known(signature, args, kwargs):
                self._decided = self._consider_safely(signature, args, kwargs)
            return self._decided is not None

    def _consider_after(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any
    ) -> None:
        """Decides a signature that has just run as plain jax.jit, with these outputs.

        They may still be computed.
        """
        if self._options.donates:  # the arguments are gone
            self._num_compiled = self._plain._cache_size()
            return
        if not self._is_at_top_level() or not self._has_values(args, kwargs):
            return
        signature = self._signature(args, kwargs)
        if not self._lock.acquire(blocking=False):
            # Another thread is deciding: the next call of this signature retries.
            if signature is not None and self._decider.is_new(signature):
                self._waiting.add(signature)
                self._waits = True
                self._num_waits = _MAX_WAITS
            return
        try:
            self._num_compiled = self._plain._cache_size()
            self._num_waits -= 1
            if self._num_waits <= 0:
                self._waiting.clear()
            self._waiting.discard(signature)
            self._waits = bool(self._waiting)
            is_new = signature is not None and self._decider.is_new(signature)
            if self._decided is None and is_new:
                decided = self._consider_safely(
                    signature, args, kwargs, running=Running(outputs)
                )
                try:
                    # Before other threads see it: one that traces it waits for this
                    # lock, and jax lets no other trace the same signature.
                    if decided is not None:
                        self._decider.shared.share_plain(decided)
                finally:
                    self._decided = decided
        finally:
            self._lock.release()

    def _trace_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Traces the function, so that later traces are found in jax's cache.

        Raises the function's own errors. It is called without the lock, since the
        function may wait for other threads.
        """
        return self._plain.trace(*args, **kwargs)

    def _has_values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the arguments are concrete, so that jax compiles now."""
        jax = self._jax
        return not jax.config.jax_disable_jit and not any(
            isinstance(leaf, jax.core.Tracer)
            for leaf in jax.tree.leaves((args, kwargs))
        )

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function traced by jax.jit for decided signatures; looks up the plan."""
        if self._jax.config.jax_disable_jit or self._is_at_top_level():
            # Where a result was NaN, jax.debug_nans runs the function again.
            return self._fn(*args, **kwargs)
        signature = signature_of(self._jax, args, kwargs, self._static)
        call = self._current_call()
        if signature is not None and call is not None and self._has_values(*call):
            self._consider_in_trace(signature, *call)
        return self._decider.plans.get(signature, self._inside)(*args, **kwargs)

    def _consider_in_trace(
        self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        leave = leave_traces()
        if leave is None:
            return
        with leave():
            traced = self._trace_plain(args, kwargs)
        with leave(), self._lock:
            self._decider.forget_if_changed(signature, traced)
            if self._decider.is_new(signature):
                before = self._decider.shared.num_with_options
                # jax keeps a signature on its slow path after its trace raised.
                self._consider_safely(signature, args, kwargs, raises=())
                if self._decider.shared.num_with_options > before:
                    # jax compiles what it is tracing without them: it serves this
                    # call, and another function the later ones.
                    function = self.new_function()
                    self._decider.share_compiled(function)
                    self._decided = function

    def _consider_safely(
        self,
        signature: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        running: Running | None = None,
        raises: tuple[type[Exception], ...] = (DecisionError,),
    ) -> Any:
        """As `Decider.consider`; on failure warns and falls back to plain jax.jit.

        Args:
            signature: as in `Decider.consider`.
            args: as in `Decider.consider`.
            kwargs: as in `Decider.consider`.
            running: as in `Decider.consider`.
            raises: exceptions caused by the caller, which are raised; the next call
                with this signature raises them again.
        """
        try:
            return self._decider.consider(
                signature,
                args,
                kwargs,
                running=running,
                is_later=self._decided is not None,
            )
        except Warning:
            raise  # the user turns warnings into errors
        except raises:
            del self._decider.plans[signature]
            self._num_compiled = -1
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._decider.failed(signature, args, kwargs, reason)
            self.fall_back(reason)
            return None
        except BaseException:  # such as Ctrl-C: the next call decides
            self._decider.plans.pop(signature, None)
            self._num_compiled = -1
            if self._decided is not None:  # its trace raises
                self._decided = self.new_function()
            raise

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the signature that `_traced` will compute for these arguments."""
        found = []

        def probe(*args: Any, **kwargs: Any) -> tuple[()]:
            found.append(signature_of(self._jax, args, kwargs, self._static))
            return ()

        probe = named(self._fn, probe, name_of(self._fn))
        self._jax.jit(probe, **self._options.static).trace(*args, **kwargs)
        return found[0]

    def new_function(self) -> Any:
        """Returns a jax.jit function whose trace follows the decisions."""
        me = weakref.ref(self)

        def function(*args: Any, **kwargs: Any) -> Any:
            decider = me()
            assert decider is not None  # it is the caller
            return decider._traced(args, kwargs)

        name = unique_name(self._fn, plan=self._decider.planner.text)
        dispatcher.add(f"jit_{name}", self._decider.replacements)
        return self._jax.jit(named(self._fn, function, name), **self._options.given)

    def fall_back(self, reason: str) -> None:
        """Warns that the function runs as plain jax.jit."""
        self.warn(FallbackWarning, f"runs as plain jax.jit: {reason}")

    def warn(self, category: type[Warning], message: str) -> None:
        """Warns the caller of the function."""
        name = getattr(self, "__name__", "the function")
        warnings.warn(f"{name} {message}", category, stacklevel=level_of_user())
