# SPDX-License-Identifier: Apache-2.0
"""What is tuned: a module or a function with arguments, and the last check of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..jax.compare import Consuming
from ..jax.decide import unsupported
from ..jax.flat import flat_type, to_flat
from ..jax.jit import JitFunction
from ..jax.kept import kept_key
from ..jax.outputs import compare_bitwise
from ..jax.recipe import Proposed, Recipe
from ..jax.stages import Stages
from ..jax.wrapping import (
    Options,
    calls,
    copy_arrays,
    error_text,
    name_of,
    named,
    top_level_test,
)
from ..runtime.executable import Engine
from ..runtime.inputs import as_inputs
from ..runtime.jaxlib.package import require_jax


@dataclass(frozen=True)
class Check:
    """The last comparison of a recipe with what the user has.

    Attributes:
        speedup: over what the user has; None if it was not timed.
        interval: 95 % interval of `speedup`.
        reason: why the recipe is not to be used; "" if it is.
        is_bitwise: whether the outputs are bitwise equal; None if that was not looked
            at.
    """

    speedup: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    is_bitwise: bool | None = None


@dataclass(frozen=True)
class Program:
    """A program to tune.

    Attributes:
        name: in reports.
        module: from before XLA's passes, without donations.
        engine: the XLA that the user runs it with.
        baseline: what the user has, in words.
        key: under which the result is kept.
        inputs: one numpy array for each flat leaf of the parameters; None for random.
        donates: whether it donates arguments.
        check: compares a recipe with what the user has, in `seconds`; None for a
            measurement of the modules.
    """

    name: str
    module: HloModule
    engine: Engine
    baseline: str
    key: str
    inputs: Sequence[Any] | None = None
    donates: bool = False
    check: Callable[[Recipe, float], Check] | None = field(default=None, compare=False)


def program_of_module(
    module: HloModule,
    *,
    engine: Engine = "jaxlib",
    inputs: Sequence[Any] | None = None,
) -> Program:
    """A module, compared with what `hloenv.compile(module, engine=engine)` gives.

    Raises:
        ArgumentError: it is not from before XLA's passes, or the inputs do not match.
    """
    if module.position is not None or module.decided:
        raise ArgumentError(
            f"module {module.name!r} is from within XLA's pipeline; tune the module "
            "from before XLA's passes"
        )
    return Program(
        module.name,
        module,
        engine,
        "hloenv.compile" + "(engine='jaxlib')" * (engine == "jaxlib"),
        kept_key(
            module.fingerprint(),
            {"engine": engine} if engine != "jaxlib" else {},
            donates=False,
        ),
        as_inputs(inputs, module),
    )


def program_of_function(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    jit_options: Mapping[str, Any],
) -> Program:
    """A function with arguments, compared with `jax.jit(fn, **jit_options)`.

    Raises:
        ArgumentError: it cannot be tuned: it fails, its arguments are not arrays, it
            has side effects or options of the compiler, it is another program or has
            other results at each call, or it runs on another device than one CPU.
    """
    jax = require_jax("hloenv.tune")
    fn, given = unjitted(fn, jit_options)
    keywords = dict(kwargs)
    name, options = name_of(fn), Options(given)
    if options.compiling:
        raise ArgumentError(
            f"{name} cannot be tuned: it has compiler_options, which what is measured "
            "would not have; leave them out and tune the rest"
        )
    leaves = jax.tree.leaves((args, keywords))
    _check_values(jax, name, leaves)
    stages = _traced(jax, fn, args, keywords, given)
    reason = unsupported(jax, stages.traced, stages.lowered, leaves)
    if reason is not None:
        raise ArgumentError(f"{name} cannot be tuned: {reason}")
    again = _traced(jax, fn, args, keywords, given)
    if again.module.fingerprint() != stages.module.fingerprint():
        raise ArgumentError(
            f"{name} cannot be tuned: it is another program each time that it is "
            "traced, as with random numbers of numpy or a clock inside; pass what "
            "changes as an argument"
        )
    _check_results(jax, fn, args, keywords, options)

    def check(recipe: Recipe, seconds: float) -> Check:
        return _check(fn, args, keywords, given, recipe, seconds)

    return Program(
        name,
        stages.module,
        "jaxlib",
        "jax.jit",
        kept_key(stages.facts.fingerprint, {}, donates=stages.donates),
        _inputs(jax, stages, args, keywords, _static(jax, fn, given, len(args))),
        options.donates,
        check,
    )


def _check_values(jax: Any, name: str, leaves: Sequence[Any]) -> None:
    """Checks that a function can be called here, and that its arguments have values.

    Raises:
        ArgumentError: jax traces this code, or an argument is a shape alone.
    """
    is_traced = not top_level_test()() or any(
        isinstance(each, jax.core.Tracer) for each in leaves
    )
    if is_traced:
        raise ArgumentError(
            f"{name} cannot be tuned inside of a function of jax.jit, jax.grad or the "
            "like, where its arguments have no values: call hloenv.tune outside of it, "
            "with arrays"
        )
    if any(isinstance(each, jax.ShapeDtypeStruct) for each in leaves):
        raise ArgumentError(
            f"{name} cannot be tuned: an argument is a jax.ShapeDtypeStruct, which has "
            "no values; give arrays, such as jax.numpy.ones(each.shape, each.dtype)"
        )


def _traced(
    jax: Any,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
) -> Stages:
    """A new trace: jax keeps those of one function."""
    name = name_of(fn)
    try:
        fresh = jax.jit(named(fn, calls(fn), name), **options)
        return Stages(fresh.trace(*args, **kwargs))
    except HloEnvError:
        raise
    except Exception as error:
        hint = ""
        if isinstance(error, TypeError):
            hint = (
                "; arguments must be arrays, numbers or pytrees of them, and others "
                "must be named as static: static_argnums=, static_argnames="
            )
        raise ArgumentError(
            f"{name} cannot be tuned: jax.jit fails on it with "
            f"{type(error).__name__}: {error_text(error)}{hint}"
        ) from error


def _check_results(
    jax: Any,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
) -> None:
    """Runs it twice.

    Raises:
        ArgumentError: it fails, or the results differ.
    """
    plain = jax.jit(named(fn, calls(fn), name_of(fn)), **options.given)
    call: Callable[[], Any] = lambda: plain(*args, **kwargs)  # noqa: E731
    if options.donates:
        call = Consuming(plain, args, kwargs)
    try:
        first, second = (jax.block_until_ready(call()) for _ in range(2))
    except Exception as error:
        raise ArgumentError(
            f"{name_of(fn)} cannot be tuned: it fails with {type(error).__name__}: "
            f"{error_text(error)}"
        ) from error
    if not compare_bitwise(first, second):
        raise ArgumentError(
            f"{name_of(fn)} cannot be tuned: two calls with the same arguments have "
            "different results, so that no version can be checked against it"
        )


def _inputs(
    jax: Any,
    stages: Stages,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: tuple[frozenset[int], frozenset[str]],
) -> list[Any]:
    """One numpy array for each flat leaf of the module's parameters."""
    numbers, names = static
    dynamic = tuple(each for i, each in enumerate(args) if i not in numbers)
    named_ = {name: each for name, each in kwargs.items() if name not in names}
    leaves, tree = jax.tree.flatten((dynamic, named_))
    if tree != stages.traced.in_tree:
        raise ArgumentError(
            "the static arguments cannot be distinguished from the others; pass them "
            "by keyword, with static_argnames="
        )
    infos = jax.tree.leaves(stages.lowered.args_info)
    arrays = []
    for index in sorted(stages.lowered._lowering.compile_args["kept_var_idx"]):
        dtype = flat_type(jax, infos[index]).dtype
        arrays.append(np.array(to_flat(jax, leaves[index]), dtype=dtype))
    return arrays


def _static(
    jax: Any, fn: Callable[..., Any], options: dict[str, Any], count: int
) -> tuple[frozenset[int], frozenset[str]]:
    """Positions and names of the static arguments, of a call with `count` positions."""
    info = getattr(jax.jit(fn, **options), "_jit_info", None)
    found = []
    for name in ("static_argnums", "static_argnames"):
        value = getattr(info, name, options.get(name)) or ()
        found.append((value,) if isinstance(value, int | str) else tuple(value))
    # jax takes positions from the names, where a call may have fewer arguments.
    numbers = (each % count for each in found[0] if -count <= each < count)
    return frozenset(numbers), frozenset(found[1])


def unjitted(
    fn: Callable[..., Any], jit_options: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that was given to jax.jit, and the options that were.

    Args:
        fn: a plain function, one of `jax.jit`, or one of `hloenv.jit`.
        jit_options: of a plain function.

    Raises:
        ArgumentError: there are options for a function of jax.jit, or it has shardings.
    """
    if isinstance(fn, JitFunction):
        return fn._fn, dict(fn._options.given)
    info = getattr(fn, "_jit_info", None)
    plain: Any = getattr(fn, "__wrapped__", None)
    if info is None or plain is None:
        return fn, dict(jit_options)
    if jit_options:
        raise ArgumentError(
            f"{name_of(fn)} is a function of jax.jit, so its options are fixed; leave "
            f"{', '.join(jit_options)} out, or give the plain function"
        )
    if info.user_specified_in_shardings:
        raise ArgumentError(
            f"{name_of(fn)} cannot be tuned: it has shardings, and one CPU device is "
            "supported"
        )
    names = [
        *("static_argnums", "static_argnames", "donate_argnums", "donate_argnames"),
        "keep_unused",
    ]
    options = {name: getattr(info, name) for name in names if getattr(info, name)}
    if info.compiler_options_kvs:
        options["compiler_options"] = dict(info.compiler_options_kvs)
    return plain, options


def _check(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
    recipe: Recipe,
    seconds: float,
) -> Check:
    """Calls the recipe's version and plain jax.jit in turns, from Python."""
    jax = require_jax("hloenv.tune")
    with warnings.catch_warnings():
        # The reason is in the result.
        warnings.simplefilter("ignore")
        tuned = JitFunction(
            fn,
            policy=Proposed(recipe),
            passes=None,
            until=None,
            budget=seconds,
            remember=False,
            tuned=None,
            jit_options=options,
        )
        copies = copy_arrays(jax, (args, kwargs))
        tuned(*copies[0], **copies[1])
    if not tuned.considered:
        return Check(reason="it was not considered by hloenv.jit")
    found = tuned.considered[-1]
    if not found.is_used:
        return Check(found.speedup, found.interval, found.reason or "it is not faster")
    ours, plain = tuned, jax.jit(named(fn, calls(fn), name_of(fn)), **options)
    calls_of = [
        Consuming(each, args, kwargs)
        if Options(options).donates
        else (lambda each=each: each(*args, **kwargs))
        for each in (plain, ours)
    ]
    is_bitwise = compare_bitwise(*(each() for each in calls_of))
    return Check(found.speedup, found.interval, is_bitwise=is_bitwise)
