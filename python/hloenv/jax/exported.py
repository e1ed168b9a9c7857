# SPDX-License-Identifier: Apache-2.0
"""Decides a function here, for a machine that has jax alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError, CompileError
from ..hlo.passes import run_passes
from ..policies import Policy, get_policy
from ..policies.gpu_forms import GPU_PASSES
from ..policies.known_forms import FORM_PASSES
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import avals_of, function_of
from .decide import (
    Decided,
    Passes,
    as_pipelines,
    decide,
    side_effects,
    unsupported_function,
)
from .flat import from_flat, to_flat
from .lowering import from_lowered, jitted, kept_arguments
from .wrapping import name_of, without_derivative

# The policy and passes of a platform, in jax's words.
_DEFAULTS = {"cuda": ("gpu-forms", GPU_PASSES), "cpu": ("known-forms", FORM_PASSES)}
_PLATFORMS = (*_DEFAULTS, "rocm", "tpu")


@dataclass(frozen=True)
class Export:
    """A decided function for another machine.

    Attributes:
        exported: a `jax.export.Exported`: its `call` is a function of the arguments of
            the original one. It has no derivative.
        decided: what was decided.
    """

    exported: Any
    decided: Decided

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes what `jax.export.deserialize` reads.

        Raises:
            ArgumentError: jax cannot write the types of arguments or results.
        """
        try:
            data = self.exported.serialize()
        except ValueError as error:
            raise ArgumentError(
                f"jax cannot write the types of arguments or results: {error} (for a "
                "namedtuple, call jax.export.register_namedtuple_serialization here "
                "and there)"
            ) from error
        Path(path).write_bytes(data)


def export(
    fn: Callable[..., Any],
    *args: Any,
    platform: str = "cuda",
    policy: str | Policy | None = None,
    passes: Passes | None = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> Export:
    """Decides a function for a platform that need not be here, before XLA's passes.

        hloenv.jax.export(step, state, batch).save("step.bin")

    and there, with nothing but jax:

        step = jax.jit(jax.export.deserialize(open("step.bin", "rb").read()).call)

    jax there compiles the decided function with its whole pipeline. Outputs are not
    compared: hloenv's rewrites preserve them, up to rounding, for finite values (a
    product with zeros that is left out gives no NaN for infinity). Donations are
    dropped: donate the arguments of jax.jit there.

    Args:
        fn: as in `from_jax`, but for a `jax.stages.Lowered`.
        *args: what `fn` takes: arrays, `jax.ShapeDtypeStruct`s, numbers, pytrees.
        platform: in jax's words: "cuda", "rocm", "cpu", "tpu".
        policy: a policy or its name; by default "gpu-forms" for "cuda", "known-forms"
            for "cpu".
        passes: the passes to decide, in order; by default those of the default policy.
        static_argnums: as for `jax.jit`; for a plain function only.
        static_argnames: as for `jax.jit`; for a plain function only.
        **kwargs: keyword arguments of `fn`.

    Raises:
        ArgumentError: there is no such platform; a policy or passes are missing; or
            `fn` has side effects or shapes that are not numbers, places values on
            devices, is for several of them, or has no form for the platform.
        ArgumentTypeError: the policy is not callable.
        CompileError: jax cannot export the decided module.
        ImportError: jax is missing or too old.
        TypeError: static arguments were named for a function that is jitted already.
    """
    jax = require_jax("hloenv.jax.export")
    if platform not in _PLATFORMS:
        raise ArgumentError(
            f"platform must be one of {', '.join(_PLATFORMS)}, got {platform!r}"
        )
    usual = _DEFAULTS.get(platform)
    policy = policy if policy is not None else usual and usual[0]
    passes = passes if passes is not None else usual and usual[1]
    if policy is None or passes is None:
        raise ArgumentError(
            f"hloenv has no rules for the platform {platform!r}, only for "
            f"{', '.join(_DEFAULTS)}; give policy=... and passes=..."
        )
    rule = get_policy(policy) if isinstance(policy, str) else policy
    if not callable(rule):
        raise ArgumentTypeError(
            "policy must be a name, or a function from Alternatives to decisions, "
            f"got {type(rule).__name__}"
        )
    traced = jitted(fn, static_argnums, static_argnames).trace(*args, **kwargs)
    if not all(
        isinstance(size, int) for each in traced.jaxpr.in_avals for size in each.shape
    ):
        _check("its arguments have symbolic shapes; give shapes of numbers")
    _check(side_effects(traced))  # of some there is no form for another platform
    try:
        lowered = traced.lower(lowering_platforms=(platform,))
    except (NotImplementedError, ValueError) as error:
        _check(f"jax has no form of it for {platform}: {error}")
    _check(unsupported_function(traced, lowered))
    kept = kept_arguments(lowered)
    # Rules of loops read the whole body, and jax calls functions in it.
    module = from_lowered(lowered, donations=False)
    module = run_passes(module, "call-inliner").module
    decided = decide(module, rule, as_pipelines(passes), route="stablehlo")
    return Export(_exported(jax, traced, kept, decided, platform, fn), decided)


def _check(reason: str | None) -> None:
    if reason is not None:
        raise ArgumentError(f"this function cannot be exported: {reason}")


def _exported(
    jax: Any,
    traced: Any,
    kept: list[int],
    decided: Decided,
    platform: str,
    fn: Callable[..., Any],
) -> Any:
    """The decided module with the arguments and results of the function."""
    from jax.export import export as export_by_jax

    avals = traced.jaxpr.out_avals
    flat = avals_of(jax, decided.applied.output_specs())
    call = without_derivative(
        "an exported function", function_of(decided.applied, flat, platform=platform)
    )

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        arrays = call(*(to_flat(jax, leaves[number]) for number in kept))
        return jax.tree.unflatten(traced.out_tree, from_flat(jax, arrays, avals))

    run.__name__ = name_of(fn)
    types = [
        jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type)
        for each in traced.jaxpr.in_avals
    ]
    # Without static arguments, which are part of the module.
    args, kwargs = jax.tree.unflatten(jax.tree.structure(traced.args_info), types)
    try:
        return export_by_jax(jax.jit(run), platforms=[platform])(*args, **kwargs)
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError) as error:
        raise CompileError(f"jax cannot export the decided module: {error}") from error
