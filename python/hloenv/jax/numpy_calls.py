# SPDX-License-Identifier: Apache-2.0
"""jax functions that run without jax: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..hlo.module import HloModule
from ..runtime.executable import Executable, compile, time_runs
from .attempts import forms_of
from .decide import Decided
from .lowering import from_lowered, require_jax
from .wrapping import Options, calls, name_of, named

# Of the timing of one version.
_ROUNDS = 20
# A version must take less than this share of the time of XLA's default.
_SHARE = 0.97


@dataclass(frozen=True)
class _Version:
    """A function for one signature.

    Attributes:
        executable: runs it.
        kept: which flat arguments it takes; None for all.
        tree: structure of the result.
    """

    executable: Executable
    kept: tuple[int, ...] | None
    tree: Any

    def arguments(self, leaves: Sequence[Any]) -> Sequence[Any]:
        return leaves if self.kept is None else [leaves[i] for i in self.kept]


class NumpyFunction:
    """The result of `jit(fn, outputs="numpy")`: call it as the function.

    Attributes:
        considered: the decided versions, by signature, used or not.
    """

    def __init__(
        self, fn: Callable[..., Any], *, budget: float, jit_options: dict[str, Any]
    ) -> None:
        self._jax = jax = require_jax("hloenv.jit")
        options = Options(jit_options)
        if options.donates or options.static:
            raise ArgumentTypeError(
                "outputs='numpy' takes no donated and no static arguments; bind static "
                "ones with functools.partial"
            )
        functools.update_wrapper(self, fn)
        self.considered: list[Decided] = []
        self._plain = jax.jit(named(fn, calls(fn), name_of(fn)), **jit_options)
        self._budget = budget
        self._flatten = jax.tree_util.tree_flatten
        self._unflatten = jax.tree_util.tree_unflatten
        self._lock = threading.Lock()
        # The last version by structure of the arguments, and all by signature.
        self._last: dict[Any, _Version] = {}
        self._versions: dict[Any, _Version] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; a new signature is compiled first.

        Args:
            *args: as for the function: pytrees of numpy or jax arrays and numbers.
            **kwargs: the same by keyword.

        Returns:
            The function's result, with numpy arrays in the place of jax's.
        """
        leaves, tree = self._flatten((args, kwargs))
        version = self._last.get(tree)
        if version is not None:
            try:
                outputs = version.executable(*version.arguments(leaves))
            except ArgumentError:
                pass  # other shapes or types
            else:
                return self._unflatten(version.tree, outputs)
        version = self._version(leaves, tree, args, kwargs)
        outputs = version.executable(*version.arguments(leaves))
        return self._unflatten(version.tree, outputs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds as a method."""
        return self if instance is None else functools.partial(self, instance)

    def _version(
        self,
        leaves: list[Any],
        tree: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Version:
        key = tree, tuple(_type_of(leaf) for leaf in leaves)
        with self._lock:
            version = self._versions.get(key)
            if version is None:
                version = self._versions[key] = self._compile(args, kwargs)
            self._last[tree] = version
        return version

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Version:
        jax = self._jax
        traced = self._plain.trace(*args, **kwargs)
        lowered = traced.lower()
        if traced.jaxpr.effects:
            raise ArgumentError(
                "outputs='numpy' needs a function without side effects; this one has "
                f"{', '.join(sorted(map(str, traced.jaxpr.effects)))}"
            )
        module = from_lowered(lowered, donations=False)
        results, tree = jax.tree.flatten(traced.out_info)
        for leaf in (*traced.jaxpr.in_avals, *results):
            if not isinstance(leaf.dtype, np.dtype):
                raise ArgumentError(
                    f"outputs='numpy' cannot pass {leaf.dtype}; use "
                    "jax.random.key_data and wrap_key_data inside the function"
                )
        kept = tuple(sorted(lowered._lowering.compile_args["kept_var_idx"]))
        is_all = len(kept) == len(traced.jaxpr.in_avals)
        flat = jax.tree.leaves((args, kwargs))
        inputs = [np.asarray(flat[i], traced.jaxpr.in_avals[i].dtype) for i in kept]
        executable = self._fastest(module, inputs)
        return _Version(executable, None if is_all else kept, tree)

    def _fastest(self, module: HloModule, inputs: list[Any]) -> Executable:
        """The module compiled by XLA's default or hloenv's rules."""
        default = compile(module)
        decided = forms_of(module)
        if decided is None:
            return default
        other = compile(decided.applied)
        durations = time_runs([default, other], [inputs, inputs], repeats=_ROUNDS)
        share = float(np.median(durations[1]) / np.median(durations[0]))
        is_used = share < _SHARE or not self._budget
        self.considered.append(
            Decided(
                **{
                    **vars(decided),
                    "is_used": is_used,
                    "speedup": 1 / share,
                    "reason": "" if is_used else "it is not clearly faster",
                }
            )
        )
        return other if is_used else default


def _type_of(leaf: Any) -> Any:
    """Shape and dtype of an argument; the type of a number."""
    if hasattr(leaf, "shape"):
        return leaf.shape, leaf.dtype
    return type(leaf)
