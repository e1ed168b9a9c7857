# SPDX-License-Identifier: Apache-2.0
"""Decided versions of a function that were compiled and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..runtime.jaxlib.products import has_product_without_code
from .compare import CLEAR_GAIN, Call, Comparison, Faster
from .decide import OF_LIBRARY, Decided
from .replacements import Replaced
from .verdicts import Verdict

# Lower end of the interval of the speed-up by another compiler.
_MIN_GAIN_OF_ANOTHER = 1.05
# What each option of jaxlib's code generator must gain, as later signatures have none.
_MIN_GAIN_OF_OPTION = 1.02
# Up to which speed-up and slow-down nothing has changed, and the ends of its interval.
_SAME = 1.05, 1.15


@dataclass
class Trial:
    """A decided version that was compiled.

    Attributes:
        attempt: its name.
        decided: what was decided.
        plan: what the trace of the signature calls.
        function: the compiled function.
        replaced: of jaxlib's module; None if that is left.
        reason: why it is not used; empty if it may be.
        is_fault: whether it failed, or its outputs differ and should not.
        lowered: what was compiled with options of the compiler; None without any.
        discard: frees what was made for it, if it is not used.
        keep: keeps what was compiled, for other processes, where that is possible;
            None where nothing is compiled for it alone.
    """

    attempt: str
    decided: Decided
    plan: Callable[..., Any]
    function: Any
    replaced: Replaced | None = None
    reason: str = ""
    is_fault: bool = False
    lowered: Any = None
    discard: Callable[[], None] | None = None
    keep: Callable[[], None] | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it may be used."""
        return not self.reason

    @property
    def worth(self) -> float:
        """The speed-up, 1 if it was not compared, less what it must gain more.

        By another compiler, or by options; 0 if it may not be used.
        """
        if not self.is_usable:
            return 0.0
        speedup = self.decided.speedup or 1.0
        if self.decided.tuned:
            return speedup
        if self.decided.engine == "wheel":
            speedup /= _MIN_GAIN_OF_ANOTHER
        return speedup / _MIN_GAIN_OF_OPTION ** len(self.decided.options.split())

    @property
    def changes_nothing(self) -> bool:
        """Whether it takes as long as plain jax.jit, as far as a comparison tells."""
        speedup, interval = self.decided.speedup, self.decided.interval
        if speedup is None or interval is None:
            return False
        most, surely = _SAME
        return (
            1 / most <= speedup <= most
            and interval[0] >= 1 / surely
            and interval[1] <= surely
        )

    def free(self) -> None:
        """Frees what was made for it, as it is not used."""
        if self.discard is not None:
            self.discard()
            self.discard = None

    def compiled(self, replaced: Replaced) -> None:
        """Takes the result of the compilation."""
        self.replaced = replaced
        self.reason = replaced.refused
        self.is_fault = bool(replaced.refused) and not (
            replaced.is_known or replaced.is_left
        )
        if replaced.decided is not None and self.decided.route == "jaxlib":
            own = self.decided
            self.decided = replace(
                replaced.decided,
                tuned=own.tuned,
                left_out=own.left_out,
                options=own.options,
            )
        elif replaced.decided is not None and self.decided.route == "stablehlo":
            self.decided = replace(self.decided, then=replaced.decided)

    def compared(self, result: Comparison) -> None:
        """Takes the result of the comparison with the plain function."""
        self.reason = result.reason
        # Another XLA rounds otherwise, which may count for much, as after many steps
        # of training; only of what was tuned is it known not to.
        is_known = self.decided.engine == "jaxlib" or bool(self.decided.tuned)
        if not (self.reason or is_known) and _is_little(result):
            self.reason = (
                "another compiler's code is not clearly faster by a twentieth: less "
                "may be a loss after other work"
            )
        self.is_fault = not result.is_equal and is_known
        self.decided = replace(
            self.decided,
            speedup=result.speedup,
            interval=result.interval,
            fresh_bytes=result.fresh_bytes,
        )

    def check_products(self, lowered: Any) -> None:
        """Refuses what jaxlib has compiled, where it cannot run a product of it.

        Args:
            lowered: a `jax.stages.Lowered`, which is compiled if that was not yet done.
        """
        if self.is_usable and OF_LIBRARY in self.decided.accepted:
            text = lowered.compile().as_text()
            if text is None or has_product_without_code(text):
                self.reason = (
                    "jaxlib has no code for what it makes of a product of bf16"
                )

    def as_faster(self, call: Call) -> Faster:
        """What further versions must be faster than.

        Args:
            call: of this one.
        """
        return Faster(call, Comparison(self.decided.speedup, self.decided.interval))

    def recalled(self, verdict: Verdict) -> None:
        """Takes the result of a comparison in an earlier process."""
        self.decided = replace(
            self.decided, speedup=verdict.speedup, interval=verdict.interval
        )


def _is_little(result: Comparison) -> bool:
    low = None if result.interval is None else result.interval[0]
    return low is not None and low < _MIN_GAIN_OF_ANOTHER


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """The fastest of those that may be used; None if there is none."""
    usable = [each for each in trials if each.is_usable]
    return max(usable, key=lambda each: each.worth, default=None)


def much_faster(trials: Iterable[Trial]) -> Trial | None:
    """The fastest, if plain jax.jit surely takes several times as long.

    Further runs of that would take long, and tell little.
    """
    best = fastest(trials)
    if best is None or best.decided.speedup is None:
        return None
    low = best.decided.interval[0] if best.decided.interval else best.decided.speedup
    return best if low > CLEAR_GAIN else None


def verdict_of(best: Trial | None, considered: Iterable[Decided]) -> Verdict:
    """What to keep for other processes.

    Args:
        best: of the trials.
        considered: the versions of the signature, used or not.
    """
    if best is not None:
        return Verdict(
            best.attempt,
            speedup=best.decided.speedup,
            interval=best.decided.interval,
        )
    reasons = list(dict.fromkeys(each.reason for each in considered if each.reason))
    return Verdict("", "; ".join(reasons))
