# SPDX-License-Identifier: Apache-2.0
"""The call for which a signature is decided, repeated and timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..runtime.jaxlib.package import require_jax
from .attempts import Attempt
from .compare import (
    MOVING,
    Comparison,
    Consuming,
    Faster,
    Running,
    compare,
    exceeds,
    time_of,
    too_large,
)
from .outputs import difference
from .stages import Stages
from .wrapping import moved_arguments, varied_arguments


class TimedCall:
    """A call of a function of jax.jit.

    Attributes:
        args: of the call.
        kwargs: of the call.
    """

    def __init__(
        self,
        plain: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        donates: bool,
        budget: float,
    ) -> None:
        """Does not call it.

        Args:
            plain: the function of plain jax.jit.
            args: of the call.
            kwargs: of the call.
            donates: whether it donates arguments.
            budget: seconds of a comparison.
        """
        self.args = args
        self.kwargs = kwargs
        self._plain = plain
        self._donates = donates
        self._budget = budget

    def by(self, fn: Callable[..., Any]) -> Callable[[], Any]:
        """The same call of another function, which may be repeated."""
        if self._donates:
            return Consuming(fn, self.args, self.kwargs)
        return lambda: fn(*self.args, **self.kwargs)

    @property
    def plain(self) -> Callable[[], Any]:
        """The call of plain jax.jit, which may be repeated."""
        return self.by(self._plain)

    def moved(self, draw: int, fn: Callable[..., Any] | None = None) -> Any:
        """Calls a function with floats moved by last bits, those of `draw`.

        Args:
            draw: the number of the move.
            fn: the function; plain jax.jit by default.
        """
        jax = require_jax("hloenv.jit")
        call = self._with(moved_arguments(jax, (self.args, self.kwargs), draw))
        return call.by(self._plain if fn is None else fn)()

    def compare(
        self,
        fn: Callable[..., Any],
        *,
        has_values: bool,
        is_promising: bool,
        than: Faster | None = None,
    ) -> Comparison:
        """Compares another function with plain jax.jit; as `compare`.

        If it is faster, and an array of the arguments has one value throughout, the
        results for others are compared, too.

        Args:
            fn: the other function.
            has_values: whether it may be called with other values than these.
            is_promising: as of an `Attempt`.
            than: as in `compare`.
        """
        jax = require_jax("hloenv.jit")
        try:
            found = compare(
                self.plain,
                self.by(fn),
                seconds=self._budget,
                moved=self.moved if has_values else None,
                other_moved=partial(self.moved, fn=fn) if has_values else None,
                is_promising=is_promising,
                than=than,
            )
        except jax.errors.JaxRuntimeError as error:  # not of the plain one, which ran
            return Comparison(reason=f"it failed: {error}", is_equal=False)
        if found.reason or not has_values:
            return found
        arguments = varied_arguments(jax, (self.args, self.kwargs))
        if arguments is None:
            return found
        other = self._with(arguments)
        differs = difference(
            *(other.plain(), other.by(fn)()),
            moved=other.moved,
            actual_moved=partial(other.moved, fn=fn),
            seconds=MOVING * self._budget,
        )
        if not differs:
            return found
        reason = (
            f"its outputs for other values differ from the plain function's: {differs}"
        )
        return replace(found, reason=reason, is_equal=False)

    def _with(self, arguments: Any) -> TimedCall:
        """The call with other positional arguments and keywords."""
        args, kwargs = arguments
        return TimedCall(
            self._plain, args, kwargs, donates=self._donates, budget=self._budget
        )

    def too_long(
        self,
        stages: Stages,
        running: Running | None = None,
        *,
        is_promising: bool = False,
    ) -> str:
        """Why the function is not compared; empty if it is.

        Args:
            stages: of the signature.
            running: this call, if it is still computed.
            is_promising: as of an `Attempt`.
        """
        plain = self.plain
        reason = too_large(plain, stages.traced.jaxpr.out_avals)
        if not reason:
            stages.lowered.compile()  # in jax's cache, where `plain` finds it
            reason = exceeds(plain, self._budget, running, is_promising=is_promising)
        return reason

    def is_short_for(self, attempt: Attempt) -> bool:
        """Whether it takes so little time that an attempt cannot be faster."""
        return attempt.min_ns > 0 and self.plain_ns < attempt.min_ns

    @cached_property
    def plain_ns(self) -> int:
        """Nanoseconds of a run of the plain function."""
        return time_of(self.plain)
