# SPDX-License-Identifier: Apache-2.0
"""Functions that look like the user's own, and what identifies their calls."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from .._text import shortened
from .._typing import Array
from ..errors import ArgumentError, ArgumentTypeError
from ..runtime.jaxlib.package import require_jax
from ..runtime.random_inputs import perturbed, varied


class Wrapped(Protocol):
    """What a `Decider` needs of the function that it decides for."""

    def new_function(self) -> Any:
        """A new jax.jit function whose trace calls what `Decider.plans` says."""

    def fall_back(self, reason: str) -> None:
        """Warns that the function runs as plain jax.jit."""

    def warn(self, category: type[Warning], message: str) -> None:
        """Warns the user of the function."""


class DonationWarning(UserWarning):
    """Donated arguments of a function of hloenv.jit stay alive."""


@dataclass(frozen=True)
class Options:
    """Options of jax.jit.

    Attributes:
        given: all of them.
    """

    given: Mapping[str, Any]

    @property
    def static(self) -> dict[str, Any]:
        """Those that name static arguments."""
        found = {
            name: value
            for name, value in self.given.items()
            if name.startswith("static")
        }
        # Empty ones have a meaning beside others.
        return found if any(map(_names_any, found.values())) else {}

    @property
    def inside(self) -> dict[str, Any]:
        """Those of a function that another function of jax.jit calls."""
        return {
            name: value
            for name, value in self.given.items()
            if name != "compiler_options"
        }

    @property
    def compiling(self) -> dict[str, str]:
        """Those of the compiler, as text."""
        return {
            name: repr(value)
            for name, value in self.given.items()
            if name == "compiler_options" and value
        }

    @functools.cached_property
    def donates(self) -> bool:
        """Whether they donate arguments."""
        return any(
            _names_any(value)
            for name, value in self.given.items()
            if name.startswith("donate")
        )


def _names_any(value: Any) -> bool:
    """Whether an option of jax.jit names an argument: an index, a name, or several."""
    return value is not None and not (isinstance(value, Sized) and len(value) == 0)


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, or of the type of another callable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def error_text(error: BaseException) -> str:
    """The message of an error in one line, of limited length."""
    return shortened(str(error), 300)


def qualified_name(fn: Callable[..., Any]) -> str:
    """The name under which pickle finds a function in its module."""
    return str(getattr(fn, "__qualname__", name_of(fn)))


def copy_arrays(jax: Any, tree: Any) -> Any:
    """A pytree with copies of its arrays, jax's and numpy's."""
    return jax.tree.map(
        lambda leaf: leaf.copy() if isinstance(leaf, jax.Array | np.ndarray) else leaf,
        tree,
    )


def moved_arguments(jax: Any, tree: Any, draw: int = 0) -> Any:
    """A pytree with the floats of its arrays, but complex ones, moved by 1 ulp.

    Up or down, and by 1 ulp of the type that jax gives them; in other directions for
    each `draw`.
    """
    # Together: arrays of one shape move in different directions.
    return _with_arrays(jax, tree, functools.partial(perturbed, seed=draw))


def varied_arguments(jax: Any, tree: Any) -> Any:
    """A pytree with `varied` arrays; None if none is."""
    return _with_arrays(jax, tree, varied)


def _with_arrays(
    jax: Any,
    tree: Any,
    change: Callable[[list[Array | None]], list[Array | None]],
) -> Any:
    """A pytree with other values of its arrays; None if `change` returns none."""

    def as_jax_has_it(leaf: Any) -> Any:
        is_array = isinstance(leaf, np.ndarray | jax.Array)
        if not is_array or getattr(leaf, "weak_type", False):
            return None
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):  # a random key
            return None
        array = np.asarray(leaf)
        return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))

    def as_given(leaf: Any, array: Any) -> Any:
        if array is None:
            return leaf
        if isinstance(leaf, np.ndarray):
            return array
        if getattr(leaf, "committed", False):
            return jax.device_put(array, leaf.sharding)
        return jax.numpy.asarray(array)

    leaves, structure = jax.tree.flatten(tree)
    arrays = change([as_jax_has_it(leaf) for leaf in leaves])
    if len(arrays) != len(leaves):
        return None
    return structure.unflatten(map(as_given, leaves, arrays))


def types_of(jax: Any, tree: Any) -> Any:
    """A pytree with the types of its arrays in their place, jax's and numpy's."""
    return jax.tree.map(
        lambda leaf: (
            jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False)
            )
            if isinstance(leaf, jax.Array | np.ndarray)
            else leaf
        ),
        tree,
    )


def calls(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A new function that calls `fn`: jax shares caches between uses of one."""
    return lambda *args, **kwargs: fn(*args, **kwargs)


def named(
    fn: Callable[..., Any], function: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """Gives `function` a name, and the signature and metadata of `fn`."""
    copy_metadata(fn, function)
    function.__name__ = function.__qualname__ = name
    return function


def copy_metadata(fn: Callable[..., Any], wrapper: Any) -> None:
    """As `functools.update_wrapper`, but what the wrapper's type has stays."""
    functools.update_wrapper(wrapper, fn, updated=())
    for name, value in getattr(fn, "__dict__", {}).items():
        if not hasattr(type(wrapper), name):
            wrapper.__dict__.setdefault(name, value)


def check_function(jax: Any, fn: Any, jit_options: Mapping[str, Any]) -> None:
    """Raises what `jax.jit` raises for a function that it does not take.

    Raises:
        ArgumentTypeError: it is not callable.
        TypeError: as of `jax.jit`: of a generator function, or a static method.
    """
    if not callable(fn):
        raise ArgumentTypeError(f"hloenv.jit needs a function, got {type(fn).__name__}")
    jax.jit(fn, **jit_options)


@dataclass(frozen=True)
class StaticArguments:
    """Which arguments are static, as jax counts them.

    Attributes:
        numbers: of arguments given by position; negative ones count from the end.
        names: of arguments given by name.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Any) -> StaticArguments:
        """Those of a function of jax.jit; none if this jax does not say."""
        info = getattr(function, "_jit_info", None)
        return cls(
            tuple(getattr(info, "static_argnums", ())),
            tuple(getattr(info, "static_argnames", ())),
        )

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The static values of a call, with their types."""
        found = [
            args[number]
            for number in self.numbers
            if -len(args) <= number < len(args)  # others are given by name
        ]
        found += [kwargs[name] for name in self.names if name in kwargs]
        return [(type(value), value) for value in found]


def signature_of(
    jax: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: StaticArguments = StaticArguments(),
) -> Any:
    """Identifies a trace: types, static values and their types, jax's settings.

    Args:
        jax: the package.
        args: of the trace.
        kwargs: of the trace.
        static: which of them are static: jax compares these as they are, and not by
            their leaves.

    Returns:
        A key; None if a static argument has indistinguishable parts, or a pytree of the
        user's does not flatten while it holds tracers.
    """
    try:
        leaves, tree = jax.tree.flatten((args, kwargs))
    except Exception:  # of the user's code
        return None
    types = [
        jax.typeof(leaf) if isinstance(leaf, jax.core.Tracer) else (type(leaf), leaf)
        for leaf in leaves
    ]
    # What traces depend on: precision, x64, the random generator, ...
    fixed = tuple(static.values(args, kwargs))
    signature = tree, tuple(types), fixed, trace_context()()
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


@functools.cache
def trace_context() -> Callable[[], Any]:
    """A function that returns the settings of jax that traces depend on.

    It takes a fraction of a microsecond.
    """
    config = require_jax("hloenv.jit").config
    try:
        from jax._src.config import trace_context as found
    except ImportError:  # another version of jax: those that change values
        return lambda: (
            config.jax_enable_x64,
            config.jax_default_matmul_precision,
            config.jax_numpy_dtype_promotion,
            config.jax_threefry_partitionable,
            config.jax_default_prng_impl,
        )
    context: Callable[[], Any] = found
    return context


@functools.cache
def top_level_test() -> Callable[[], bool]:
    """A function that says whether no transformation of jax is at work."""
    jax = require_jax("hloenv.jit")
    try:
        from jax._src.core import trace_state_clean
    except ImportError:  # another version of jax
        return lambda: not isinstance(jax.numpy.zeros(()) + 0, jax.core.Tracer)
    test: Callable[[], bool] = trace_state_clean
    return test


@functools.cache
def leave_traces() -> Callable[[], AbstractContextManager[Any]] | None:
    """A context manager that leaves jax's trace; None if this jax has none.

    In its block jax traces, compiles and runs as outside of all traces.
    `jax.ensure_compile_time_eval` also folds constants, in nested traces too: they
    become other modules, and their callbacks run while they are traced.
    """
    try:
        from jax._src.core import eval_context
    except ImportError:  # another version of jax
        return None
    leave: Callable[[], AbstractContextManager[Any]] = eval_context
    return leave


def level_of_user() -> int:
    """Returns the stack level of the user's code for a warning by the caller."""
    jax = require_jax("hloenv.jit")
    folders = (Path(each).parent for each in (__file__, jax.__file__ or ""))
    ours = tuple(f"{folder}{os.sep}" for folder in folders)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    return level


def without_derivative(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, which says what to do where jax asks for its derivative."""
    function = require_jax("hloenv.jax").custom_jvp(call)

    def refuse(*_: Any) -> Any:
        raise ArgumentError(
            f"{what} has no derivative; lower and decide the gradient: "
            "hloenv.HloModule.from_jax(jax.grad(fn), ...)"
        )

    function.defjvp(refuse)
    return cast("Callable[..., Any]", function)
