# SPDX-License-Identifier: Apache-2.0
"""jax.jit with decisions: lower, decide, compare, and let jaxlib compile the result.

A `JitFunction` calls plain jax.jit until a decided version of some signature is used;
new signatures are detected as new entries of jax's call cache. From then on, calls go
to one jax.jit function whose trace looks up the version of its signature, so that jax
serves all later calls from its own caches.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from ..errors import ArgumentError, ArgumentTypeError, DecisionError
from ..hlo.pipeline import finish
from ..policies import Policy, get_policy
from .compare import compare
from .decide import Decided, Passes, as_pipelines, check_compiles, decide, unsupported
from .dispatch import dispatcher, unique_name
from .injection import require_injection
from .lowering import from_lowered, require_jax
from .replacements import Replacements

_BUDGET = 0.5  # seconds of timing for each signature


class FallbackWarning(UserWarning):
    """A function of hloenv.jit runs as plain jax.jit."""


class DonationWarning(UserWarning):
    """Donated arguments of a function of hloenv.jit stay alive."""


@overload
def jit(fn: Callable[..., Any], **options: Any) -> JitFunction: ...
@overload
def jit(**options: Any) -> Callable[[Callable[..., Any]], JitFunction]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    policy: str | Policy = "keep-convolutions",
    passes: Passes = "algsimp",
    until: str | None = "simplification",
    budget: float = _BUDGET,
    **jit_options: Any,
) -> JitFunction | Callable[[Callable[..., Any]], JitFunction]:
    """jax.jit, with a policy for XLA's rewrites if that is faster.

        @hloenv.jit
        def step(params, batch): ...

        @hloenv.jit(policy="fewest-ops", passes="algsimp", static_argnames="length")
        def sample(key, length): ...

    The first call with a new signature runs as under `jax.jit`. Then the function is
    lowered, the policy decides the rewrites of each pass, the rest of XLA's pipeline
    runs, jaxlib compiles the result, and both versions are timed interleaved with the
    call's arguments. Later calls use the decided version if its outputs are equal and
    it is clearly faster, and are plain `jax.jit` calls otherwise; both have the same
    call overhead.

    If this is not possible (another device than one CPU, side effects, a policy or a
    pass that fails, a module that jaxlib rejects) the function runs as under `jax.jit`,
    with a `FallbackWarning` that states the reason. Inside another transformation
    (`jax.jit`, `grad`, `vmap`) it is plain `jax.jit`: decide the outer function.

    Args:
        fn: as for `jax.jit`; without it, `jit` returns a decorator.
        policy: a name in `hloenv.policies.list_policies()`, or any function from
            `Alternatives` to decisions (-1 leaves an alternative undecided).
        passes: one, or several that are decided in order, each on the result of the
            previous one. A pass whose rewrites XLA's backend can only use after layout
            assignment ("fusion", "general-fusion") is decided before XLA's own fusion.
        until: position in XLA's pipeline, as in `HloEnv.run_until`: before its own
            simplification by default; None for the module as jax lowers it.
        budget: seconds for the comparison of one signature. With 0 nothing is compared
            or checked, and the decided version runs from the first call.
        **jit_options: as for `jax.jit` (`static_argnums`, `donate_argnames`, ...).
            jaxlib drops the donations of a replaced module, so a function that
            donates is decided only with `budget=0`, and keeps its arguments then
            (`DonationWarning`).

    Raises:
        ArgumentError: `budget` is negative.
        ArgumentTypeError: `fn` or `policy` is not callable, or `passes` are not passes.
        ImportError: jax is missing or too old.
        UnknownPassError: no pass has this name.
        UnknownPolicyError: no policy has this name.
    """
    make = functools.partial(
        JitFunction,
        policy=policy,
        passes=passes,
        until=until,
        budget=budget,
        jit_options=jit_options,
    )
    return make if fn is None else make(fn)


class _Now(threading.local):
    """The arguments of this thread's current call, for its trace."""

    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None


class JitFunction:
    """The result of `jit`: call it as the function.

    Attributes:
        considered: the decided versions, one for each signature, used or not.
    """

    considered: list[Decided]

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        policy: str | Policy,
        passes: Passes,
        until: str | None,
        budget: float,
        jit_options: dict[str, Any],
    ) -> None:
        self._jax = jax = require_jax("hloenv.jit")
        require_injection("hloenv.jit")
        if not callable(fn):
            raise ArgumentTypeError(
                f"hloenv.jit needs a function, got {type(fn).__name__}"
            )
        if not budget >= 0:
            raise ArgumentError(f"budget must be seconds >= 0, got {budget}")
        functools.update_wrapper(self, fn)
        self.considered = []
        self._fn = fn
        self._policy = get_policy(policy) if isinstance(policy, str) else policy
        if not callable(self._policy):
            raise ArgumentTypeError(
                "policy must be a name, or a function from Alternatives to decisions, "
                f"got {type(policy).__name__}"
            )
        self._pipelines = as_pipelines(passes)
        self._until = until
        self._budget = budget
        self._plan_text = None
        if isinstance(policy, str):
            plan = [policy, until, [each.to_json() for each in self._pipelines]]
            self._plan_text = json.dumps(plan, sort_keys=True)
        self._options = jit_options
        self._static = {
            name: value
            for name, value in jit_options.items()
            if name.startswith("static")
        }
        donates = any(
            value is not None and value != ()
            for name, value in jit_options.items()
            if name.startswith("donate")
        )
        self._considers = not (budget and donates)
        self._lock = threading.RLock()
        self._now = _Now()
        self._replacements = Replacements()
        # Maps a signature to the function that its trace calls.
        self._plans: dict[Any, Callable[..., Any]] = {}
        # A separate function, as jax shares caches between uses of one function.
        self._plain = jax.jit(_named(fn, _calls(fn), _name(fn)), **jit_options)
        self._num_compiled = 0
        self._decided: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, and decides a new signature."""
        decided = self._decided
        if decided is not None:
            now = self._now
            now.call = args, kwargs
            try:
                return decided(*args, **kwargs)
            finally:
                now.call = None
        if not self._budget:
            return self._decide_first(args, kwargs)
        plain = self._plain
        outputs = plain(*args, **kwargs)
        if plain._cache_size() != self._num_compiled and self._considers:
            self._consider_after(args, kwargs)
        return outputs

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method, like functions of jax.jit."""
        return self if instance is None else functools.partial(self, instance)

    @property
    def decided(self) -> list[Decided]:
        """The decided versions in use, one for each signature."""
        return [each for each in self.considered if each.is_used]

    @property
    def num_injected(self) -> int:
        """Number of compilations that used a decided module.

        jax may compile one signature several times, as for arguments committed to a
        device.
        """
        return self._replacements.count

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`: without decisions."""
        return self._plain.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`: without decisions."""
        return self._plain.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._plain.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Clears all decisions and compiled versions."""
        with self._lock:
            self._decided = None
            self._plain.clear_cache()
            self._num_compiled = 0
            self._plans.clear()
            self._replacements.clear()
            self.considered.clear()

    def _decide_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Decides and runs the first call of a signature, without comparison."""
        if not self._has_values(args, kwargs):
            return self._plain(*args, **kwargs)
        with self._lock:
            if self._decided is None:
                signature = self._signature(args, kwargs)
                if signature is not None:
                    self._decided = self._consider_safely(signature, args, kwargs)
                self._decided = self._decided or self._new_function()
        return self(*args, **kwargs)

    def _consider_after(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Decides a signature that has just run as plain jax.jit."""
        if not self._has_values(args, kwargs):
            return
        # If another thread is deciding, the next call of this signature retries.
        if self._lock.acquire(blocking=False):
            try:
                self._num_compiled = self._plain._cache_size()
                signature = self._signature(args, kwargs)
                known = signature is None or signature in self._plans
                if self._decided is None and not known:
                    self._decided = self._consider_safely(signature, args, kwargs)
            finally:
                self._lock.release()

    def _has_values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the arguments are concrete, so that jax compiles now."""
        jax = self._jax
        return not jax.config.jax_disable_jit and not any(
            isinstance(leaf, jax.core.Tracer)
            for leaf in jax.tree.leaves((args, kwargs))
        )

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function traced by jax.jit for decided signatures; looks up the plan."""
        if self._jax.config.jax_disable_jit:
            return self._fn(*args, **kwargs)
        signature = _signature(self._jax, args, kwargs)
        call = self._now.call
        if call is not None and self._has_values(*call):
            with self._jax.ensure_compile_time_eval(), self._lock:
                if signature is not None and signature not in self._plans:
                    # jax keeps a function on its slow path after its trace raised.
                    self._consider_safely(signature, *call, raises=())
        return self._plans.get(signature, self._plain)(*args, **kwargs)

    def _consider_safely(
        self,
        signature: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        raises: tuple[type[Exception], ...] = (DecisionError,),
    ) -> Any:
        """As `_consider`; on failure warns and falls back to plain jax.jit.

        Args:
            signature: as in `_consider`.
            args: as in `_consider`.
            kwargs: as in `_consider`.
            raises: exceptions caused by the caller, which are raised; the next call
                with this signature raises them again.
        """
        try:
            return self._consider(signature, args, kwargs)
        except Warning:
            raise  # the user turns warnings into errors
        except raises:
            del self._plans[signature]
            self._num_compiled = -1
            raise
        except Exception as error:
            self._plans[signature] = self._plain
            self._fall_back(f"{type(error).__name__}: {error}")
            return None

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the signature that `_traced` will compute for these arguments."""
        found = []

        def probe(*args: Any, **kwargs: Any) -> tuple[()]:
            found.append(_signature(self._jax, args, kwargs))
            return ()

        probe = _named(self._fn, probe, "probe")
        self._jax.jit(probe, **self._static).trace(*args, **kwargs)
        return found[0]

    def _consider(
        self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Decides which function the trace of a signature calls.

        Returns:
            A compiled function with the decisions; None for the plain function.
        """
        self._plans[signature] = self._plain
        jax = self._jax
        traced = self._plain.trace(*args, **kwargs)
        lowered = traced.lower()
        reason = unsupported(jax, traced, lowered, jax.tree.leaves((args, kwargs)))
        if reason is not None:
            self._fall_back(reason)
            return None
        module = from_lowered(lowered, donations=False)
        decided = decide(module, self._policy, self._pipelines, until=self._until)
        if self._is_default(decided):
            reason = "the decisions give the same compiled module as XLA's default"
            self._keep(decided, reason)
            return None
        check_compiles(decided.result)
        if any(each.donated for each in jax.tree.leaves(lowered.args_info)):
            self._warn(
                DonationWarning,
                "keeps its donated arguments: jaxlib drops the donations of a replaced "
                "module",
            )
        return self._try(signature, decided, args, kwargs)

    def _is_default(self, decided: Decided) -> bool:
        """Whether the decisions give XLA's default module."""
        if not self._budget:
            return False
        if decided.num_accepted == decided.num_rejected == 0:
            return True
        return decided.result.fingerprint() == finish(decided.module).fingerprint()

    def _keep(self, decided: Decided, reason: str, **compared: Any) -> None:
        decided = replace(decided, is_used=False, reason=reason, **compared)
        self.considered.append(decided)

    def _try(
        self,
        signature: Any,
        decided: Decided,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Compiles and compares the decided version; as `_consider`."""
        self._plans[signature] = self._plan(decided)
        trial = self._new_function()
        replaced = self._replacements.compile(
            decided.result, trial.lower(*args, **kwargs)
        )
        if replaced.refused:
            self._plans[signature] = self._plain
            if replaced.is_known:
                self._keep(decided, replaced.refused)
            else:
                self._fall_back(replaced.refused)
            return None
        if self._budget:
            result = compare(
                lambda: self._plain(*args, **kwargs),
                lambda: trial(*args, **kwargs),
                seconds=self._budget,
            )
            if result.reason:
                self._plans[signature] = self._plain
                self._replacements.leave(replaced)
                self._keep(
                    decided,
                    result.reason,
                    speedup=result.speedup,
                    interval=result.interval,
                )
                if not result.is_equal:
                    self._fall_back(result.reason)
                return None
            decided = replace(decided, speedup=result.speedup, interval=result.interval)
        self.considered.append(decided)
        return trial

    def _plan(self, decided: Decided) -> Callable[..., Any]:
        """Wraps the plain function under a name unique in jax's persistent cache."""
        name = f"{_name(self._fn)}_decided_{decided.result.fingerprint()}"
        plain = self._plain
        return self._jax.jit(  # type: ignore[no-any-return]
            _named(self._fn, _calls(plain), name), **self._static
        )

    def _new_function(self) -> Any:
        """Returns a jax.jit function whose trace follows the decisions."""
        me = weakref.ref(self)

        def function(*args: Any, **kwargs: Any) -> Any:
            decider = me()
            assert decider is not None  # it is the caller
            return decider._traced(args, kwargs)

        name = unique_name(self._fn, plan=self._plan_text)
        dispatcher.add(f"jit_{name}", self._replacements)
        return self._jax.jit(_named(self._fn, function, name), **self._options)

    def _fall_back(self, reason: str) -> None:
        self._warn(FallbackWarning, f"runs as plain jax.jit: {reason}")

    def _warn(self, category: type[Warning], message: str) -> None:
        name = getattr(self, "__name__", "the function")
        warnings.warn(f"{name} {message}", category, stacklevel=_level_of_user())


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _calls(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: fn(*args, **kwargs)


def _named(
    fn: Callable[..., Any], function: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """Gives `function` a name, and the signature and metadata of `fn`."""
    functools.update_wrapper(function, fn)
    function.__name__ = function.__qualname__ = name
    return function


def _signature(jax: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Identifies the arguments of a trace: types, and values of static ones."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    types = [
        jax.typeof(leaf) if isinstance(leaf, jax.core.Tracer) else leaf
        for leaf in leaves
    ]
    signature = tree, tuple(types)
    try:
        hash(signature)
    except TypeError:
        return None  # a static argument with indistinguishable parts
    return signature


def _level_of_user() -> int:
    """Returns the stack level of the user's code for a warning by the caller."""
    jax = require_jax("hloenv.jit")
    folders = (Path(each).parent for each in (__file__, jax.__file__ or ""))
    ours = tuple(f"{folder}{os.sep}" for folder in folders)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    return level
