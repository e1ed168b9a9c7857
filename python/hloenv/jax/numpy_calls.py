# SPDX-License-Identifier: Apache-2.0
"""jax functions that run without jax: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, CompileError, HloEnvError
from ..hlo.module import HloModule
from ..runtime.executable import Executable, Finish, compile
from ..runtime.jaxlib.package import require_jax
from .auto import forms_of
from .compare import SLOW_GAIN, compare, exceeds
from .decide import Decided
from .lowering import from_lowered, kept_arguments, lower_traced
from .overhead import MAX_NS, for_wheel, may_be_short
from .pickling import Pickled
from .wrapping import (
    Options,
    calls,
    check_function,
    copy_metadata,
    name_of,
    named,
    top_level_test,
    trace_context,
)

# Arguments whose shape and dtype an executable checks.
_CHECKED = frozenset({np.ndarray, bool, int, float, complex})
# Options of jax.jit that the wheel's executable does not follow.
_OPTIONS_OF_JAX = frozenset(
    {"compiler_options", "in_shardings", "out_shardings", "device", "backend"}
)
# Of a function; the oldest is compiled again when it is called.
_MAX_VERSIONS = 4096
# Times what a short call takes: a first one does not make it so much longer.
_FAR = 10


@dataclass(frozen=True)
class _Version:
    """A function for one signature.

    Attributes:
        executable: runs it; None if plain jax.jit does.
        fingerprint: of the module as jax lowers it.
        jaxpr: what it was traced to, a weak reference: after `jax.clear_caches()` there
            is another.
        kept: which flat arguments it takes.
        dtypes: of those.
        settings: of jax, when it was traced.
        tree: structure of the result.
    """

    executable: Executable | None
    fingerprint: str
    jaxpr: weakref.ref[Any]
    kept: tuple[int, ...]
    dtypes: tuple[Any, ...]
    settings: Any
    tree: Any

    def arguments(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Those that the executable takes, in its types."""
        return [
            np.asarray(leaves[i], dtype)
            for i, dtype in zip(self.kept, self.dtypes, strict=True)
        ]

    def last(self, leaves: Sequence[Any], *, is_repeated: bool) -> _Last:
        """How its next call is recognized.

        Args:
            leaves: of a call of this version.
            is_repeated: whether the call before was one, too.
        """
        types = tuple(map(type, leaves))
        if not is_repeated or self.executable is None or not set(types) <= _CHECKED:
            return _Last(self, None)
        dtypes = dict(zip(self.kept, self.dtypes, strict=True))
        # numpy's float64 is equal to None.
        arrays = [
            (index, leaf.shape, leaf.dtype, dtypes.get(index))
            for index, leaf in enumerate(leaves)
            if isinstance(leaf, np.ndarray)
            and (index not in dtypes or leaf.dtype != dtypes[index])
        ]
        # Other values of numbers that are not used are of no importance.
        are_all = len(self.kept) == len(leaves)
        return _Last(self, types, tuple(arrays), None if are_all else self.kept)


@dataclass(frozen=True)
class _Last:
    """The last version of a structure of arguments.

    Attributes:
        version: the version.
        types: of flat arguments for which the checks here and those of the executable
            are enough; None if some need others, or calls of other versions come
            between, which the executable would reject by an exception.
        others: index, shape and dtype of the arrays that it does not take as they are,
            and the dtype that it takes; None where it takes none.
        kept: which flat arguments it takes; None for all.
    """

    version: _Version
    types: tuple[type, ...] | None
    others: tuple[tuple[int, Any, Any, Any], ...] = ()
    kept: tuple[int, ...] | None = None

    def arguments(self, leaves: list[Any]) -> list[Any] | None:
        """What the executable takes of a call with these types; None if not this one.

        Args:
            leaves: flat arguments, of the types in `types`.
        """
        if not self.others and self.kept is None:
            return leaves
        for index, shape, given, _ in self.others:
            if leaves[index].dtype != given or leaves[index].shape != shape:
                return None
        found = list(leaves)
        for index, _, _, wanted in self.others:
            if wanted is not None:
                found[index] = found[index].astype(wanted)
        return found if self.kept is None else [found[i] for i in self.kept]


class NumpyFunction(Pickled):
    """The result of `jit(fn, outputs="numpy")`: call it as the function.

    Attributes:
        considered: the decided versions, by signature, used or not.
    """

    def __init__(
        self, fn: Callable[..., Any], *, budget: float, jit_options: dict[str, Any]
    ) -> None:
        self._jax = jax = require_jax("hloenv.jit")
        check_function(jax, fn, jit_options)
        options = Options(jit_options)
        if options.donates or options.static:
            raise ArgumentTypeError(
                "outputs='numpy' takes no donated and no static arguments; bind static "
                "ones with functools.partial"
            )
        others = [
            name
            for name, value in jit_options.items()
            if value is not None and name in _OPTIONS_OF_JAX
        ]
        if others:
            raise ArgumentTypeError(
                f"outputs='numpy' cannot follow {', '.join(others)}: it does without "
                "jax's compiler and devices; leave them out, or outputs='numpy'"
            )
        copy_metadata(fn, self)
        self.__name__ = name_of(fn)
        self._made_with = fn, {"budget": budget, "jit_options": jit_options}
        self.considered: list[Decided] = []
        self._plain = jax.jit(named(fn, calls(fn), name_of(fn)), **jit_options)
        self._budget = budget
        self._config = jax.config
        self._flatten = jax.tree_util.tree_flatten
        self._unflatten = jax.tree_util.tree_unflatten
        self._settings = trace_context()
        self._is_at_top_level = top_level_test()
        self._lock = threading.RLock()
        # The last version by structure of the arguments, and all by signature.
        self._last: dict[Any, _Last] = {}
        self._versions: dict[Any, _Version] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; a new signature is compiled first.

        Args:
            *args: as for the function: pytrees of numpy or jax arrays and numbers.
            **kwargs: the same by keyword.

        Returns:
            The function's result, with numpy arrays in the place of jax's.
        """
        config = self._config
        if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
            return self._run_plain(args, kwargs)
        leaves, tree = self._flatten((args, kwargs))
        last = self._last.get(tree)
        if (
            last is not None
            and last.types == tuple(map(type, leaves))
            and last.version.settings == self._settings()
            and last.version.jaxpr() is not None
        ):
            assert last.version.executable is not None
            given = last.arguments(leaves)
            if given is not None:
                try:
                    outputs = last.version.executable(*given)
                except ArgumentError:
                    pass  # other shapes or dtypes
                else:
                    return self._unflatten(last.version.tree, outputs)
        version = self._version(leaves, tree, args, kwargs)
        if version.executable is None:
            return self._run_plain(args, kwargs)
        outputs = version.executable(*version.arguments(leaves))
        return self._unflatten(version.tree, outputs)

    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Copies: they belong to the caller.
        return self._jax.tree.map(np.array, self._plain(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method."""
        return self if instance is None else types.MethodType(self, instance)

    def clear_cache(self) -> None:
        """Clears all decisions and compiled versions."""
        with self._lock:
            self._plain.clear_cache()
            self._last.clear()
            self._versions.clear()
            self.considered.clear()

    def _version(
        self,
        leaves: list[Any],
        tree: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Version:
        key = tree, tuple(_type_of(leaf) for leaf in leaves), self._settings()
        version = self._versions.get(key)
        if version is None or version.jaxpr() is None:
            # Without the lock: the function may call itself, or wait for a thread
            # that does. Later traces are found in jax's cache.
            self._plain.trace(*args, **kwargs)
            with self._lock:
                version = self._traced_again(self._versions.get(key), args, kwargs)
                if version is not None:
                    self._versions[key] = version
                else:
                    if len(self._versions) >= _MAX_VERSIONS:
                        del self._versions[next(iter(self._versions))]
                        self._last.clear()
                    version = self._versions[key] = self._compile(args, kwargs)
        last = self._last.get(tree)
        is_repeated = last is None or last.version is version
        self._last[tree] = version.last(leaves, is_repeated=is_repeated)
        return version

    def _traced_again(
        self, version: _Version | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Version | None:
        """The version, if the function is still traced to the same program."""
        if version is None or version.jaxpr() is not None:
            return version
        traced = self._plain.trace(*args, **kwargs)
        module = from_lowered(lower_traced(traced), donations=False)
        if module.fingerprint() != version.fingerprint:
            return None
        return replace(version, jaxpr=weakref.ref(traced.jaxpr))

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Version:
        jax = self._jax
        traced = self._plain.trace(*args, **kwargs)
        lowered = lower_traced(traced)
        if traced.jaxpr.effects:
            raise ArgumentError(
                "outputs='numpy' needs a function without side effects; this one has "
                f"{', '.join(sorted(map(str, traced.jaxpr.effects)))}"
            )
        module = from_lowered(lowered, donations=False)
        results, tree = traced.jaxpr.out_avals, traced.out_tree
        for leaf in (*traced.jaxpr.in_avals, *results):
            if leaf.dtype == jax.dtypes.float0:
                raise ArgumentError("outputs='numpy' cannot pass float0")
            if not isinstance(leaf.dtype, np.dtype):
                raise ArgumentError(
                    f"outputs='numpy' cannot pass {leaf.dtype}; use "
                    "jax.random.key_data and wrap_key_data inside the function"
                )
        kept = tuple(kept_arguments(lowered))
        dtypes = tuple(traced.jaxpr.in_avals[i].dtype for i in kept)
        leaves = jax.tree.leaves((args, kwargs))
        version = _Version(
            None,
            *(module.fingerprint(), weakref.ref(traced.jaxpr), kept, dtypes),
            *(self._settings(), tree),
        )
        try:
            default = compile(module)
        except CompileError as error:  # such as of a call of a Python function
            undecided = Decided(module, module).without_large_modules()
            self.considered.append(replace(undecided, is_used=False, reason=str(error)))
            del self.considered[:-_MAX_VERSIONS]
            return version
        inputs = version.arguments(leaves)
        before = len(self.considered)
        fastest = self._fastest(module, default, inputs)
        reason = self._worse_than_plain(fastest, inputs, args, kwargs)
        if reason:
            found = self.considered[before:] or [Decided(module, module)]
            self.considered[before:] = [
                replace(
                    each.without_large_modules(),
                    is_used=False,
                    reason=each.reason or reason,
                )
                for each in found
            ]
        del self.considered[:-_MAX_VERSIONS]
        return replace(version, executable=None if reason else fastest)

    def _worse_than_plain(
        self,
        executable: Executable,
        inputs: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> str:
        """Why plain jax.jit runs the function; empty if it does not.

        It does unless the executable is clearly faster.
        """
        run: Callable[[], Any] = lambda: tuple(executable(*inputs))  # noqa: E731
        # In a trace of jax's, as of a function that calls itself, jax has no values.
        if not self._budget or not self._is_at_top_level():
            return ""
        if too_long := exceeds(run, self._budget):
            return too_long
        leaves = self._jax.tree.leaves
        try:
            result = compare(
                lambda: tuple(leaves(self._run_plain(args, kwargs))),
                run,
                seconds=self._budget,
            )
        except self._jax.errors.JaxRuntimeError:  # such as a lack of memory
            return ""
        # By a run of each, where more take too long.
        is_far_faster = result.interval is None and (result.speedup or 0) >= SLOW_GAIN
        return "" if result.is_equal and is_far_faster else result.reason

    def _fastest(
        self, module: HloModule, default: Executable, inputs: Sequence[Any]
    ) -> Executable:
        """The module compiled by XLA's default or hloenv's rules."""
        fastest, last = default, Decided(module, module, route="stablehlo")
        for rules in (_forms, _overhead):
            try:
                if rules is _overhead and not self._is_short(module, fastest, inputs):
                    break
                decided = rules(last)
                if decided is None:
                    continue
                other = compile(decided.result, finish=_finish_of(decided))
                found = self._compared(decided, fastest, other, inputs)
            except HloEnvError as error:  # of a pass, of a compiler or in a run
                reason = f"{type(error).__name__}: {error}"
                found = replace(Decided(module, module), is_used=False, reason=reason)
            if found.is_used and decided is not None:
                if last.accepted:  # is in this one
                    del self.considered[-1]
                    found = _over(last, found)
                fastest, last = other, found
            self.considered.append(found.without_large_modules())
        return fastest

    def _is_short(
        self, module: HloModule, executable: Executable, inputs: Sequence[Any]
    ) -> bool:
        """Whether a call takes so little that the runtime's overhead counts."""
        if not self._budget:
            return may_be_short(module)
        for _ in range(2):  # the first may be slower
            begin = time.perf_counter_ns()
            executable(*inputs)
            taken = time.perf_counter_ns() - begin
            if taken <= MAX_NS:
                return True
            if taken > _FAR * MAX_NS:
                break
        return False

    def _compared(
        self,
        decided: Decided,
        fastest: Executable,
        other: Executable,
        inputs: Sequence[Any],
    ) -> Decided:
        """Whether a decided version is used, and why not.

        Raises:
            HloEnvError: it fails.
        """
        if not self._budget:
            return decided
        if too_long := exceeds(lambda: fastest(*inputs), self._budget):
            return replace(decided, is_used=False, reason=too_long)
        result = compare(
            lambda: fastest(*inputs), lambda: other(*inputs), seconds=self._budget
        )
        return replace(
            decided,
            is_used=not result.reason,
            speedup=result.speedup,
            interval=result.interval,
            reason=result.reason,
        )


def _finish_of(decided: Decided) -> Finish:
    """What is left of XLA's pipeline: its `result` of route "wheel" is final."""
    return "none" if decided.route == "wheel" else "legalize"


def _over(first: Decided, second: Decided) -> Decided:
    """The second, compared with the first, with what both have gained."""
    if first.speedup is None or second.speedup is None:
        return second
    interval = second.interval
    if interval is not None:
        interval = first.speedup * interval[0], first.speedup * interval[1]
    return replace(second, speedup=first.speedup * second.speedup, interval=interval)


def _forms(decided: Decided) -> Decided | None:
    return forms_of(decided.module)


def _overhead(decided: Decided) -> Decided | None:
    found = for_wheel(decided)
    return found if found.route == "wheel" else None


def _type_of(leaf: Any) -> Any:
    """Shape, dtype and weakness of an array; the type of a number."""
    if hasattr(leaf, "shape"):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    return type(leaf)
