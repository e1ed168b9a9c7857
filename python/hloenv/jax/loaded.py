# SPDX-License-Identifier: Apache-2.0
"""Saved modules as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError
from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule
from ..runtime.executable import Executable, Finish, compile
from .ffi_call import call_executable
from .lowering import require_jax
from .wrapping import calls, name_of, named


def load(
    module: HloModule | str | os.PathLike[str],
    fn: Callable[..., Any] | None = None,
    *,
    finish: Finish = "legalize",
    **jit_options: Any,
) -> Loaded:
    """A decided module as a function for jax, in one line.

        step = hloenv.load("decided.hlo", step)

    The module is compiled by the XLA of TensorFlow's wheel and runs inside jax as one
    custom call, also inside `jax.jit` and `lax.scan`. It has no derivative.

    Args:
        module: what `optimize`, `search` or `HloModule.save` has written, or a module.
        fn: the function that the module was lowered from, or one of the same arguments
            and results, for which the result is called with the same pytrees. Without
            it, the result takes and returns flat arrays in the order of the module.
        finish: as for `hloenv.compile`.
        **jit_options: as for `jax.jit`, if `fn` has static arguments. The module was
            lowered for some values of them; others are not noticed.

    Raises:
        ArgumentError: at the call: `fn` has other arguments or results than the module.
        CompileError: XLA cannot compile the module, or jax cannot call it.
        FileNotFoundError: there is no such file.
        ImportError: jax is missing or too old.
    """
    return Loaded(compile(module, finish=finish), fn, jit_options)


class Loaded:
    """The result of `load`: call it as the function.

    Attributes:
        executable: on numpy arrays, without jax.
    """

    def __init__(
        self,
        executable: Executable,
        fn: Callable[..., Any] | None,
        jit_options: dict[str, Any],
    ) -> None:
        self._jax = jax = require_jax("hloenv.load")
        self.executable = executable
        self._call = call_executable(executable)
        self._plain = None if fn is None else jax.jit(fn, **jit_options)
        traced = calls(self._traced)
        if fn is not None:
            traced = named(fn, traced, name_of(fn))
        self._function = jax.jit(traced, **jit_options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module."""
        return self._function(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As on a function of `jax.jit`."""
        return self._function.lower(*args, **kwargs)

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        jax = self._jax
        if self._plain is None:
            leaves = jax.tree.leaves((args, kwargs))
            self._check("argument", leaves, self.executable.input_specs)
            return tuple(self._call(*leaves))
        traced = self._plain.trace(*args, **kwargs)
        kept = sorted(traced.lower()._lowering.compile_args["kept_var_idx"])
        leaves = [
            leaf
            for leaf in jax.tree.leaves((args, kwargs))
            if isinstance(leaf, jax.core.Tracer)
        ]
        leaves = [leaves[i] for i in kept]
        self._check("argument", leaves, self.executable.input_specs)
        results, tree = jax.tree.flatten(traced.out_info)
        self._check("result", results, self.executable.output_specs)
        return jax.tree.unflatten(tree, self._call(*leaves))

    def _check(self, kind: str, leaves: list[Any], specs: Sequence[ArraySpec]) -> None:
        found = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]
        wanted = [(tuple(spec.shape), str(spec.dtype)) for spec in specs]
        if found == wanted:
            return
        name = self.executable.module.name
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
