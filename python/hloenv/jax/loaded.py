# SPDX-License-Identifier: Apache-2.0
"""Saved modules as functions."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from .._native import core
from ..errors import ArgumentError, CompileError
from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule, as_module
from ..hlo.pipeline import restricts_pipeline
from ..runtime.executable import Engine, Executable, Finish, check_engine, compile
from ..runtime.jaxlib.ffi_call import call_executable
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import program_of
from .flat import flat_type, from_flat, to_flat
from .lowering import kept_arguments, lower_traced
from .wrapping import calls, name_of, named, top_level_test, without_derivative


def load(
    module: HloModule | str | os.PathLike[str],
    fn: Callable[..., Any] | None = None,
    *,
    finish: Finish = "legalize",
    engine: Engine = "wheel",
    **jit_options: Any,
) -> Loaded:
    """A decided module as a function for jax, in one line.

        step = hloenv.load("decided.hlo", step)

    The module is compiled by the XLA of TensorFlow's wheel and runs inside jax as one
    custom call, also inside `jax.jit` and `lax.scan`. With `engine="jaxlib"` it becomes
    a part of the function that jaxlib compiles. It has no derivative.

    Args:
        module: what `optimize`, `search` or `HloModule.save` has written, or a module.
        fn: the function that the module was lowered from, or one of the same arguments
            and results, for which the result is called with the same pytrees. Without
            it, the result takes and returns flat arrays in the order of the module.
        finish: as for `hloenv.compile`, with the wheel's XLA.
        engine: as for `hloenv.compile`; what `optimize` and `search` have measured
            with. "jaxlib" takes modules from before XLA's passes on which no rewrite
            was rejected.
        **jit_options: as for `jax.jit`, if `fn` has static arguments. The module was
            lowered for some values of them; others are not noticed.

    Raises:
        ArgumentError: at the call: `fn` has other arguments or results than the module.
        CompileError: XLA cannot compile the module, or jax cannot call it, or the
            module is not for `engine="jaxlib"`.
        FileNotFoundError: there is no such file.
        ImportError: jax is missing or too old.
    """
    module = as_module(module)
    if finish == "legalize":
        module = _row_major(module)
    check_engine(engine)
    if engine == "jaxlib":
        call = without_derivative("a loaded module", _call_by_jaxlib(module))
        return Loaded(module, call, None, fn, jit_options)
    executable = compile(module, finish=finish)
    call = without_derivative("a loaded module", call_executable(executable))
    return Loaded(executable.module, call, executable, fn, jit_options)


def _row_major(module: HloModule) -> HloModule:
    """The module with inputs and outputs as jax passes them, if XLA may still choose.

    Modules that were saved elsewhere, as those of the dataset, may have others.
    """
    if module._has_layouts or module._core.depends_on_layouts():
        return module
    return HloModule._wrap(
        core.with_default_entry_layout(module._core),
        position=module.position,
        decided=module._decided,
    )


def _call_by_jaxlib(module: HloModule) -> Callable[..., Any]:
    if restricts_pipeline(module):
        raise CompileError(
            f"module {module.name!r} is from within XLA's pipeline, or rewrites of it "
            "were rejected, which jaxlib would make again; use engine='wheel', or "
            "hloenv.jax.inject for a whole function of jax.jit"
        )
    # As calls of the wheel's executables: one element after the other.
    jax = require_jax("hloenv.load")
    return cast(
        "Callable[..., Any]", jax.custom_batching.sequential_vmap(program_of(module))
    )


class Loaded:
    """The result of `load`: call it as the function.

    Attributes:
        executable: on numpy arrays, without jax; None with `engine="jaxlib"`.
    """

    def __init__(
        self,
        module: HloModule,
        call: Callable[..., Any],
        executable: Executable | None,
        fn: Callable[..., Any] | None,
        jit_options: dict[str, Any],
    ) -> None:
        self._jax = jax = require_jax("hloenv.load")
        self.executable = executable
        self._module = module
        self._call = call
        self._fn: Any = fn
        self._is_at_top_level = top_level_test()
        self._plain = None if fn is None else jax.jit(fn, **jit_options)
        traced = calls(self._traced)
        if fn is not None:
            traced = named(fn, traced, name_of(fn))
        self._function = jax.jit(traced, **jit_options)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the module."""
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method if it stands for a function, like those of jax.jit."""
        is_plain = instance is None or self._fn is None
        return self if is_plain else types.MethodType(self, instance)

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._function.lower(*args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._function.trace(*args, **kwargs)

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._function.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """As on a function of `jax.jit`."""
        self._function.clear_cache()

    def _traced(self, /, *args: Any, **kwargs: Any) -> Any:
        jax = self._jax
        if self._plain is None:
            leaves = jax.tree.leaves((args, kwargs))
            self._check("argument", leaves, self._module.input_specs())
            return tuple(self._call(*leaves))
        if jax.config.jax_disable_jit or self._is_at_top_level():
            # Where a result was NaN, jax.debug_nans runs the function again.
            return self._fn(*args, **kwargs)
        traced = self._plain.trace(*args, **kwargs)
        kept = kept_arguments(lower_traced(traced))
        leaves = [
            to_flat(jax, leaf)
            for leaf in jax.tree.leaves((args, kwargs))
            if isinstance(leaf, jax.core.Tracer)
        ]
        leaves = [leaves[i] for i in kept]
        self._check("argument", leaves, self._module.input_specs())
        avals = traced.jaxpr.out_avals
        results = [flat_type(jax, each) for each in avals]
        self._check("result", results, self._module.output_specs())
        tree = traced.out_tree
        return jax.tree.unflatten(tree, from_flat(jax, self._call(*leaves), avals))

    def _check(self, kind: str, leaves: list[Any], specs: Sequence[ArraySpec]) -> None:
        found = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]
        wanted = [(tuple(spec.shape), str(spec.dtype)) for spec in specs]
        if found == wanted:
            return
        name = self._module.name
        if len(found) != len(wanted):
            raise ArgumentError(
                f"module {name!r} has {len(wanted)} {kind}s, but the function has "
                f"{len(found)}; give load the function that the module was lowered from"
            )
        index = next(i for i, pair in enumerate(found) if pair != wanted[i])
        raise ArgumentError(
            f"{kind} {index} of module {name!r} is {_text(wanted[index])}, but the "
            f"function has {_text(found[index])}; lower the function for these types"
        )


def _text(pair: tuple[tuple[int, ...], str]) -> str:
    shape, dtype = pair
    return f"{dtype}[{','.join(map(str, shape))}]"
