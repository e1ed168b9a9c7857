# SPDX-License-Identifier: Apache-2.0
"""`hloenv.tune`, and the use of what it has kept."""

from __future__ import annotations

import contextlib
import enum
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from ..hlo.module import HloModule, as_module
from ..jax.artefact import Artefact
from ..jax.jit import jit
from ..measurement.optional_store import optional_store
from ..measurement.store import Store
from ..runtime.executable import Engine
from ..runtime.jaxlib.package import require_injection
from .options import TuneOptions
from .patching import identity_of, jit_replaced
from .program import Program, program_of_function, program_of_module
from .state import OnChange
from .tuner import Tuner

_MODULES = (HloModule, str, os.PathLike)
# Functions of `using` that are kept although the program has dropped them.
_MAX_MADE = 256


class _Users(enum.Enum):
    """Stands for the store of the user, which is opened when it is needed."""

    STORE = "the user's"

    def __repr__(self) -> str:
        return self.value


_USERS = _Users.STORE


def tune(
    target: Callable[..., Any] | HloModule | str | os.PathLike[str],
    *args: Any,
    engine: Engine = "jaxlib",
    inputs: Sequence[Any] | None = None,
    jit_options: dict[str, Any] | None = None,
    store: Store | _Users | None = _USERS,
    on_change: OnChange | None = None,
    options: TuneOptions | None = None,
    **kwargs: Any,
) -> Artefact:
    """Tunes all stages of the compiler for a function with arguments, or for a module.

        found = hloenv.tune(step, state, batch, options=TuneOptions(seconds=60))
        print(found.entries[0])

    The result is never slower than what there is: its last step compares it afresh with
    plain `jax.jit` (of a module: with `hloenv.compile`), and where it is not faster
    beyond the 95 % interval, it is the identity, and says so. It is kept for
    `hloenv.jit(fn)` in other processes. A second call for the same program continues
    the first.

    Args:
        target: a function, plain or of `jax.jit`; or a module from before XLA's passes,
            HLO text or a path.
        *args: of the function, with values.
        engine: of a module: the XLA that the user runs it with.
        inputs: of a module: one array for each flat leaf of the parameters; by default
            random ones.
        jit_options: of a plain function: as for `jax.jit`.
        store: cache of measurements; None for none; by default the user's.
        on_change: called with the `State` after each change.
        options: budget, mode, stages, numerical class, ...; see `TuneOptions`.
        **kwargs: of the function.

    Raises:
        ArgumentError: the target cannot be tuned; the message has the reason.
        HloEnvError: the program itself cannot be compiled or run.
        ImportError: jax is missing or too old.
    """
    if options is None:
        options = TuneOptions()
    if not isinstance(options, TuneOptions):
        raise ArgumentTypeError(
            f"options must be hloenv.tune.TuneOptions(...), got {options!r}"
        )
    require_injection("hloenv.tune")
    program = _program(target, args, kwargs, engine, inputs, jit_options)
    with contextlib.ExitStack() as stack:
        if isinstance(store, _Users):
            store = optional_store()
            if store is not None:
                stack.callback(store.close)
        tuner = Tuner(program, options, store=store, on_change=on_change)
        return Artefact((tuner.run(),))


def _program(
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    engine: Engine,
    inputs: Sequence[Any] | None,
    jit_options: dict[str, Any] | None,
) -> Program:
    if isinstance(target, _MODULES):
        if args or kwargs or jit_options:
            raise ArgumentError(
                "a module takes its arrays as inputs=[...]; arguments and jit_options "
                "are for functions"
            )
        return program_of_module(as_module(target), engine=engine, inputs=inputs)
    if not callable(target):
        raise ArgumentTypeError(
            f"hloenv.tune needs a function or a module, got {type(target).__name__}"
        )
    if inputs is not None or engine != "jaxlib":
        raise ArgumentError("inputs and engine are for modules")
    return program_of_function(target, args, kwargs, jit_options or {})


@contextlib.contextmanager
def using() -> Iterator[weakref.WeakSet[Any]]:
    """Inside, functions of `jax.jit` use what `hloenv.tune` has kept for them.

    Its value is the set of these functions that are alive.
    """
    functions: weakref.WeakSet[Any] = weakref.WeakSet()
    # As with jax, `jax.jit(fn)` in a loop compiles once.
    made: OrderedDict[Any, Any] = OrderedDict()

    def noted(function: Any) -> Any:
        functions.add(function)
        return function

    def make(fn: Callable[..., Any], options: dict[str, Any], plain: Any) -> Any:
        del plain
        key = identity_of(fn, options)
        if key is None:
            return noted(jit(fn, policy="tuned", **options))
        found = made.get(key)
        if found is None:
            found = made[key] = noted(jit(fn, policy="tuned", **options))
        made.move_to_end(key)
        if len(made) > _MAX_MADE:
            made.popitem(last=False)
        return found

    with jit_replaced(make):
        yield functions


_stack = contextlib.ExitStack()


def use() -> None:
    """From now on, functions of `jax.jit` use what `hloenv.tune` has kept for them.

        import hloenv.tune

        hloenv.tune.use()  # before the functions are made

    Functions for which nothing is kept are those of plain `jax.jit`. Called before
    `from jax import jit`. A program is run so without a change by
    `python -m hloenv.tune SCRIPT`.
    """
    _stack.enter_context(using())
