# SPDX-License-Identifier: Apache-2.0
"""The flat arrays of a module as arguments and results of a function of jax.

A module has no random keys and no weak types: keys are arrays of integers there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def is_key(jax: Any, leaf: Any) -> bool:
    """Whether an array or a type is of random keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def to_flat(jax: Any, leaf: Any) -> Any:
    """An array as the module takes it."""
    return jax.random.key_data(leaf) if is_key(jax, leaf) else leaf


def flat_type(jax: Any, aval: Any) -> Any:
    """The type of an array as the module has it."""
    return jax.eval_shape(jax.random.key_data, aval) if is_key(jax, aval) else aval


def from_flat(jax: Any, arrays: Iterable[Any], avals: Iterable[Any]) -> list[Any]:
    """The results of a module as those of its function; inside a trace.

    Args:
        jax: the package.
        arrays: of the module.
        avals: jax's types of the function's results.
    """
    return [_typed(jax, array, aval) for array, aval in zip(arrays, avals, strict=True)]


def _typed(jax: Any, array: Any, aval: Any) -> Any:
    if is_key(jax, aval):
        return jax.random.wrap_key_data(array, impl=aval.dtype._impl.name)
    if aval.weak_type:
        return jax.lax.convert_element_type_p.bind(
            array, new_dtype=aval.dtype, weak_type=True, sharding=None
        )
    return array
