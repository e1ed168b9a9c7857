# SPDX-License-Identifier: Apache-2.0
"""What entry files use to say which functions to lower.

Runs inside the environment of a source: needs jax and the standard library only. An
entry file holds functions with the decorator `case`; each gets a `Lower`, calls it
with a name, a function and its arguments, and nothing is compiled:

    @case(width=[32, 128])
    def mlp(lower, width):
        model = MLP(width)
        params = lower.shapes(model.init, key(), floats(8, 64))
        lower("forward", model.apply, params, floats(8, 64))
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Larger protos hold weights as constants, or are unrolled beyond use.
MAX_PROTO_BYTES = 12 << 20

# Names of the scales of normalization layers in flax, dm-haiku, equinox, transformers.
_SCALES = ("scale", "gamma", "weight", "weights", "g")

_CASES: list[tuple[Callable[..., None], dict[str, list[Any]]]] = []


def case(**grid: list[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the function once for each point of the grid."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _CASES.append((function, grid))
        return function

    return register


def floats(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    """An argument of which only shape and type matter."""
    return jax.ShapeDtypeStruct(shape, dtype)


class Drawn(jax.ShapeDtypeStruct):
    """A float argument whose values have a distribution, which the dataset records.

    Attributes:
        distribution: "normal" with mean `location` and standard deviation `scale`, or
            "uniform" from `location` to `location + scale`.
        location: as `scipy.stats` has it.
        scale: as `scipy.stats` has it.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        distribution: str,
        location: float,
        scale: float,
    ):
        super().__init__(tuple(shape), dtype)
        for name, value in (
            ("distribution", distribution),
            ("location", float(f"{location:.4g}")),
            ("scale", float(f"{scale:.4g}")),
        ):
            object.__setattr__(self, name, value)


def normal(
    *shape: int, mean: float = 0.0, deviation: float = 1.0, dtype: Any = np.float32
) -> Drawn:
    """A normally distributed float argument."""
    return Drawn(shape, dtype, "normal", mean, deviation)


def uniform(low: float, high: float, *shape: int, dtype: Any = np.float32) -> Drawn:
    """A float argument whose values are uniform between two bounds."""
    return Drawn(shape, dtype, "uniform", low, high - low)


def weights(tree: Any, *, output_axis: int = -1) -> Any:
    """Float leaves with the distributions that initial parameters usually have.

    Matrices and kernels are normal with variance 1 / (number of inputs); scales and
    variances are near 1; biases, means and all else are near 0.

    Args:
        tree: shapes of parameters and of the state of normalization layers; leaves
            that are not of floats stay as they are.
        output_axis: which axis of a kernel is not summed over: -1 for flax and
            dm-haiku, 0 for equinox.
    """

    def drawn(path: Any, leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        name = jax.tree_util.keystr(path).lower()
        last = re.findall(r"\w+", name)[-1] if path else ""
        if "var" in name or (len(leaf.shape) < 2 and last in _SCALES):
            return uniform(0.8, 1.2, *leaf.shape, dtype=leaf.dtype)
        if len(leaf.shape) < 2 or "bias" in last or "mean" in name:
            return normal(*leaf.shape, deviation=0.02, dtype=leaf.dtype)
        inputs = math.prod(leaf.shape) / leaf.shape[output_axis]
        return normal(*leaf.shape, deviation=inputs**-0.5, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(drawn, tree)


def ints(high: int, *shape: int, low: int = 0) -> np.ndarray:
    """An int32 argument whose values matter: from `low` up to `high` - 1."""
    values = np.random.default_rng(0).integers(low, high, shape, np.int32)
    if values.size > 1:
        values.flat[0], values.flat[-1] = low, high - 1
    return values


def key() -> jax.ShapeDtypeStruct:
    """A random key of the raw kind."""
    return jax.ShapeDtypeStruct((2,), np.uint32)


def adam(
    grads: Any, moments: tuple[Any, Any, Any], params: Any, *, rate: float = 1e-3
) -> tuple[Any, tuple[Any, Any, Any]]:
    """One step of Adam with bias correction, for sources that bring no optimizer.

    Args:
        grads: gradients.
        moments: step number, first and second moments, as `adam_state` makes them.
        params: parameters.
        rate: learning rate.

    Returns:
        New parameters and moments.
    """
    tree = jax.tree_util.tree_map
    count = moments[0] + 1
    first = tree(lambda m, g: 0.9 * m + 0.1 * g, moments[1], grads)
    second = tree(lambda v, g: 0.999 * v + 0.001 * g * g, moments[2], grads)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    new = tree(
        lambda p, m, v: p - (scale * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype),
        params,
        first,
        second,
    )
    return new, (count, first, second)


def adam_state(params: Any) -> tuple[Any, Any, Any]:
    """Shapes of the state of `adam`; for parameters of `weights`, with its values.

    A second moment is a mean of squares: it has to be positive there.
    """
    leaves = jax.tree_util.tree_leaves(params)
    if not any(isinstance(leaf, Drawn) for leaf in leaves):
        like = jax.tree_util.tree_map(lambda p: floats(*p.shape, dtype=p.dtype), params)
        return floats(), like, like
    tree = jax.tree_util.tree_map
    first = tree(lambda p: normal(*p.shape, deviation=1e-3, dtype=p.dtype), params)
    second = tree(lambda p: uniform(1e-7, 1e-6, *p.shape, dtype=p.dtype), params)
    return uniform(100.0, 100.0), first, second


class Lower:
    """Lowers functions and writes what jax hands to XLA, before any pass.

    Attributes:
        prefix: first part of the modules' names.
    """

    def __init__(self, folder: Path, index: Any, entry: str, limit_s: int):
        self.prefix = ""
        self.num_modules = 0
        self._folder, self._index = folder, index
        self._entry, self._limit_s = entry, limit_s

    def __call__(
        self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> None:
        """Lowers one function; a failure is written down and the rest goes on.

        Args:
            name: last part of the module's name.
            function: a plain or a jitted function.
            *args: arrays, `floats`, `ints`, `key` or trees of them.
            **kwargs: the same by name; what jax.jit takes (static_argnums,
                static_argnames, donate_argnums) goes there instead.
        """
        options = {
            option: kwargs.pop(option)
            for option in ("static_argnums", "static_argnames", "donate_argnums")
            if option in kwargs
        }
        full_name = f"{self.prefix}/{name}"
        with self.attempt(full_name):
            is_jitted = hasattr(function, "lower") and not options
            jitted = function if is_jitted else jax.jit(function, **options)
            lowered = jitted.lower(*args, **kwargs)
            proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
            if len(proto) > MAX_PROTO_BYTES:
                raise ValueError(f"the module is too large: {len(proto)} bytes")
            statics = options.get("static_argnums", ())
            statics = (statics,) if isinstance(statics, int) else statics
            rest = [arg for i, arg in enumerate(args) if i not in statics]
            file = f"{self.num_modules:05}.pb"
            (self._folder / file).write_bytes(proto)
            given = (rest, {} if options else kwargs)
            self.write(
                module=full_name,
                file=file,
                ranges=_ranges(lowered, given),
                distributions=_distributions(lowered, given),
            )
            self.num_modules += 1

    def loss(
        self,
        loss: Callable[..., Any],
        params: Any,
        *batch: Any,
        prefix: str = "",
        only: Sequence[str] = ("loss", "grad", "train_step"),
    ) -> None:
        """A loss, its gradient, and a whole training step.

        Args:
            loss: called as loss(params, *batch), returns a number.
            params: parameters, or their shapes.
            *batch: further arguments.
            prefix: in front of the names.
            only: which of the three.
        """

        def train_step(params: Any, moments: Any, *batch: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, *batch)
            params, moments = adam(grads, moments, params)
            return params, moments, value

        functions = {
            "loss": (loss, params, *batch),
            "grad": (jax.grad(loss), params, *batch),
            "train_step": (train_step, params, adam_state(params), *batch),
        }
        for name, arguments in functions.items():
            if name in only:
                self(f"{prefix}{name}", *arguments)

    def shapes(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Shapes of what the function returns, without running it."""
        return jax.eval_shape(function, *args, **kwargs)

    def write(self, **record: Any) -> None:
        """One line of the index."""
        self._index.write(json.dumps({"entry": self._entry, **record}) + "\n")
        self._index.flush()

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Turns an exception, or too much time, into a line of the index."""
        outer = signal.alarm(self._limit_s)
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}".strip()
            self.write(failure=name, reason=text[:500])
            traceback.print_exc()
        finally:
            signal.alarm(outer)


def _kept(lowered: Any, arguments: Any) -> list[Any]:
    """The argument of each parameter of the module; None where that is not known."""
    leaves = jax.tree_util.tree_leaves(arguments)
    kept = getattr(lowered, "_lowering", None)
    kept = getattr(kept, "compile_args", {}).get("kept_var_idx")
    if kept is None:
        kept = range(len(leaves))
    return [leaves[i] if i < len(leaves) else None for i in sorted(kept)]


def _ranges(lowered: Any, arguments: Any) -> list[list[int]]:
    """[parameter, low, high] of each integer parameter whose values were given."""
    found = []
    for parameter, leaf in enumerate(_kept(lowered, arguments)):
        if isinstance(leaf, (int, np.integer)) and not isinstance(leaf, bool):
            leaf = np.asarray(leaf)
        is_array = isinstance(leaf, (np.ndarray, jax.Array))
        if is_array and leaf.dtype in (np.int32, np.int64, np.uint8, np.int8):
            values = np.asarray(leaf)
            if values.size:
                found.append([parameter, int(values.min()), int(values.max())])
    return found


def _distributions(lowered: Any, arguments: Any) -> list[list[Any]]:
    """[parameter, distribution, location, scale] of each `Drawn` parameter."""
    return [
        [parameter, leaf.distribution, leaf.location, leaf.scale]
        for parameter, leaf in enumerate(_kept(lowered, arguments))
        if isinstance(leaf, Drawn)
    ]


def run_cases(folder: Path, index: Any, entry: str, *, limit_s: int) -> int:
    """Runs everything that `case` has registered; returns the number of modules."""
    lower = Lower(folder, index, entry, limit_s)
    lower.num_modules = len(list(folder.glob("*.pb")))
    for function, grid in _CASES:
        for point in itertools.product(*grid.values()):
            values = dict(zip(grid, point, strict=True))
            shown = ",".join(f"{name}={_show(v)}" for name, v in values.items())
            label = f"{function.__name__}[{shown}]" if shown else function.__name__
            lower.prefix = f"{entry}/{label}"
            with lower.attempt(lower.prefix):
                function(lower, **values)
    _CASES.clear()
    return lower.num_modules


def _show(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(_show, value))
    return getattr(value, "__name__", str(value))
