# SPDX-License-Identifier: Apache-2.0
"""jax.jit with decisions: lower, decide, and let jaxlib compile the result."""

from __future__ import annotations

import functools
import json
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import child
from .._native import core
from ..env import HloEnv, needs_layouts
from ..errors import ArgumentTypeError, DecisionError, HloEnvError
from ..module import HloModule, read_trusted
from ..passes import Pass, Pipeline, as_pipeline
from ..place import finish
from ..policies import Policy, get_policy
from ..rewrite import as_decisions
from .dispatch import Gate, Undecided, dispatcher, gated, unique_name
from .injection import require_injection, to_jaxlib, without_persistent_cache
from .lowering import from_lowered, require_jax

# One pass is a sequence of one.
Passes = str | Pass | Pipeline | Sequence[str | Pass | Pipeline]


class FallbackWarning(UserWarning):
    """A function of hloenv.jit runs as plain jax.jit would."""


class DonationWarning(UserWarning):
    """Donated arguments of a function of hloenv.jit stay alive."""


@dataclass(frozen=True)
class Decided:
    """One signature that was decided.

    Attributes:
        module: what jax lowered.
        result: the module that runs, after XLA's passes.
        num_alternatives: how many alternatives were decided.
        num_accepted: how many of them took another choice than the original.
    """

    module: HloModule
    result: HloModule
    num_alternatives: int
    num_accepted: int


def jit(
    fn: Callable[..., Any],
    *,
    policy: str | Policy = "accept-all",
    passes: Passes = ("algsimp", "cse"),
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
) -> JitFunction:
    """jax.jit, with a policy that decides XLA's rewrites.

    For each new signature the function is lowered, the policy decides what each pass
    would rewrite, the rest of XLA's pipeline runs, and jaxlib compiles the result.
    Later calls with this signature cost what those of `jax.jit` cost.

    Where this cannot help (another device than one CPU, a policy or a pass that fails,
    a module that jaxlib refuses) the function runs as under `jax.jit`, with a
    `FallbackWarning` that says why. Inside another transformation (`jax.jit`, `grad`,
    `vmap`) it is plain `jax.jit`: the outer function is the one to decide.

    Args:
        fn: as for `jax.jit`.
        policy: a name in `hloenv.policies.list_policies()`, or any function from
            `Alternatives` to decisions.
        passes: one, or several that are decided one after the other, each on what the
            one before left. One whose rewrites XLA's backend can only use after layout
            assignment ("fusion", "general-fusion") is decided in front of XLA's own
            fusion.
        static_argnums: as for `jax.jit`.
        static_argnames: as for `jax.jit`.
        donate_argnums: as for `jax.jit`, but while a decided module runs, jaxlib keeps
            the arguments all the same (`DonationWarning`).

    Raises:
        ArgumentTypeError: `fn` or `policy` cannot be called, or `passes` are none.
        ImportError: jax is missing or too old.
        UnknownPassError: no pass has this name.
        UnknownPolicyError: no policy has this name.
    """
    return JitFunction(
        fn,
        policy=policy,
        passes=passes,
        jit_options={
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate_argnums": donate_argnums,
        },
    )


class JitFunction:
    """What `jit` returns: call it as the function.

    Attributes:
        decided: what was decided so far, one entry for each signature.
        num_injected: compilations in which a decided module ran. jax compiles one
            signature several times, for arguments that are tied to a device and so on.
    """

    decided: list[Decided]
    num_injected: int

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        policy: str | Policy,
        passes: Passes,
        jit_options: dict[str, Any],
    ) -> None:
        jax = require_jax("hloenv.jit")
        require_injection("hloenv.jit")
        if not callable(fn):
            raise ArgumentTypeError(
                f"hloenv.jit takes a function, not {type(fn).__name__}"
            )
        functools.update_wrapper(self, fn)
        self.decided = []
        self.num_injected = 0
        self._policy = get_policy(policy) if isinstance(policy, str) else policy
        if not callable(self._policy):
            raise ArgumentTypeError(
                "a policy is a name, or a function from Alternatives to decisions, not "
                f"{type(policy).__name__}"
            )
        self._passes = _pipelines(passes)
        self._lock = threading.RLock()
        self._gate = Gate()
        self._pending: _Pending | None = None
        # Fingerprint of what jaxlib has before scheduling -> what runs instead, or
        # None to leave it.
        self._replacements: dict[str, bytes | None] = {}
        self._plain = jax.jit(fn, **jit_options)
        # What is decided is lowered from here, before the gate opens; inlined, so that
        # jax finds its trace again when it traces the gated function around it.
        inner = jax.jit(fn, inline=True, **jit_options)
        self._inner = inner
        name = _name(fn, policy, self._passes)
        self._jitted = jax.jit(
            gated(fn, inner, gate=self._gate, name=name), **jit_options
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; decides first when the signature is new."""
        try:
            return self._jitted(*args, **kwargs)
        except Undecided:
            pass
        return self._first_call(args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method, as jax.jit's functions do."""
        return self if instance is None else functools.partial(self, instance)

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
        """Forgets what was decided and compiled."""
        with self._lock:
            self._jitted.clear_cache()
            self._plain.clear_cache()
            self._inner.clear_cache()
            self._replacements.clear()
            self.decided.clear()

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        jax = require_jax("hloenv.jit")
        leaves = jax.tree.leaves((args, kwargs))
        if jax.config.jax_disable_jit or any(
            isinstance(leaf, jax.core.Tracer) for leaf in leaves
        ):
            return self._plain(*args, **kwargs)
        reason = None
        has_donations = False
        with self._lock:
            if not self._is_traced(args, kwargs):
                to_decide = self._inner.lower(*args, **kwargs)
                has_donations = core.has_donations(from_lowered(to_decide)._core)
                reason = _unsupported(jax, to_decide, leaves)
                if reason is None:
                    reason = self._decide_and_compile(jax, to_decide, args, kwargs)
                self._traced(args, kwargs)
        if reason is not None:
            self._warn(FallbackWarning, f"runs as plain jax.jit: {reason}")
        elif has_donations:
            self._warn(
                DonationWarning,
                "keeps its donated arguments: jaxlib forgets the donations of a module "
                "that is replaced",
            )
        with self._gate.open():
            return self._jitted(*args, **kwargs)

    def _is_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether another thread has decided this signature in the meantime."""
        try:
            self._jitted.lower(*args, **kwargs)
        except Undecided:
            return False
        return True

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Lowers the gated function; from now on, jax knows the signature."""
        with self._gate.open():
            while True:
                try:
                    return self._jitted.lower(*args, **kwargs)
                except Undecided:
                    # Another thread, before its closed gate, traced the same signature
                    # at the same time, and jax gave its exception to both.
                    continue

    def _decide_and_compile(
        self, jax: Any, to_decide: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        """Leaves the decided module compiled in jax's caches, or says why not."""
        try:
            decided = self._decide(from_lowered(to_decide, donations=False))
            # XLA ends the process over some modules: not this one.
            child.try_compile(
                decided.result.to_proto(),
                {"place": None, "decided": [], "finish": "none"},
            )
        except DecisionError:
            raise  # the policy's mistake, which a warning would hide
        except HloEnvError as error:
            return f"{type(error).__name__}: {error}"
        pending = _Pending(decided.result.entry_layout, to_jaxlib(decided.result))
        # Before the trace: as soon as jax has that, any thread may compile it.
        self._pending = pending
        dispatcher.add(f"jit_{self._jitted.__name__}", self)
        try:
            with without_persistent_cache():
                self._traced(args, kwargs).compile()
        except jax.errors.JaxRuntimeError as error:
            if pending.fingerprint is None:
                raise  # jaxlib cannot compile the function in any case
            self._replacements[pending.fingerprint] = None
            return f"jaxlib refuses the decided module: {error}"
        finally:
            self._pending = None
        if pending.fingerprint is None:
            return pending.refused or "jaxlib compiled it without asking"
        if self._replacements[pending.fingerprint] is None:
            return "jaxlib refused what was decided for an equal module before"
        self.decided.append(decided)
        return None

    def _warn(self, category: type[Warning], message: str) -> None:
        name = getattr(self, "__name__", "the function")
        # Points at the user's call, above __call__ and _first_call.
        warnings.warn(f"{name} {message}", category, stacklevel=4)

    def _decide(self, module: HloModule) -> Decided:
        env = HloEnv(module)
        num_alternatives = num_accepted = 0
        at_fusion = False
        for pipeline in self._passes:
            if not at_fusion and needs_layouts(pipeline):
                env.run_until("fusion")
                at_fusion = True
            alternatives = env.get_alternatives(pipeline)
            decisions = as_decisions(self._policy(alternatives))
            env.apply_alternatives(decisions, alternatives)
            num_alternatives += len(alternatives)
            num_accepted += int(np.count_nonzero(decisions))
        return Decided(module, finish(env.module), num_alternatives, num_accepted)

    def replacement(self, proto: bytes) -> bytes | None:
        """What runs in the place of a module that jaxlib is about to schedule."""
        pending = self._pending
        try:
            theirs = read_trusted(proto)
        except HloEnvError as error:
            if pending is not None:
                pending.refused = f"jaxlib's module cannot be read: {error}"
            return None
        fingerprint = core.without_shardings(theirs._core).fingerprint()
        if pending is not None and fingerprint not in self._replacements:
            if theirs.entry_layout != pending.entry_layout:
                pending.refused = (
                    f"jaxlib compiles {theirs.entry_layout}, but the decided module "
                    f"is {pending.entry_layout}"
                )
                return None
            self._replacements[fingerprint] = pending.proto
        if pending is not None:
            pending.fingerprint = fingerprint
        replacement = self._replacements.get(fingerprint)
        if replacement is not None:
            self.num_injected += 1
        return replacement


@dataclass
class _Pending:
    """The module whose compilation has just been asked for.

    Attributes:
        entry_layout: of the decided module.
        proto: the decided module.
        fingerprint: of the module that it replaced, once it has.
        refused: why it was not used.
    """

    entry_layout: str
    proto: bytes
    fingerprint: str | None = None
    refused: str = ""


def _pipelines(passes: Passes) -> tuple[Pipeline, ...]:
    if isinstance(passes, str | Pass | Pipeline):
        passes = [passes]
    if not isinstance(passes, Iterable):
        raise ArgumentTypeError(
            "passes are one or several names, Pass or Pipeline objects, not "
            f"{type(passes).__name__}"
        )
    return tuple(as_pipeline(each) for each in passes)


def _name(
    fn: Callable[..., Any], policy: str | Policy, passes: tuple[Pipeline, ...]
) -> str:
    plan = None
    if isinstance(policy, str):
        plan = json.dumps([policy, [each.to_json() for each in passes]], sort_keys=True)
    return unique_name(fn, plan=plan)


def _unsupported(jax: Any, lowered: Any, leaves: list[Any]) -> str | None:
    """Why the module cannot run on one CPU device; None when it can."""
    attributes = lowered.compiler_ir("stablehlo").operation.attributes
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        if name in attributes and attributes[name].value != 1:
            return (
                f"it runs on {attributes[name].value} devices; hloenv decides for one"
            )
    committed = {
        device
        for leaf in leaves
        if isinstance(leaf, jax.Array) and leaf.committed
        for device in leaf.devices()
    }
    default = jax.config.jax_default_device or jax.devices()[0]
    platforms = {
        device if isinstance(device, str) else device.platform
        for device in committed or {default}
    }
    if platforms != {"cpu"}:
        return f"it runs on {', '.join(sorted(platforms))}; hloenv decides for cpu"
    return None
