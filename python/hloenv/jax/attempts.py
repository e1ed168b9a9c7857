# SPDX-License-Identifier: Apache-2.0
"""The ways in which one signature may be compiled other than by plain jax.jit.

A decided module goes back into jax by one of three routes:

* "stablehlo": decisions on the module as jax lowers it. jaxlib compiles the result
  with its whole pipeline; or the wheel's XLA does (`by_wheel`).
* "wheel": decisions anywhere in XLA's pipeline. The XLA of TensorFlow's wheel runs the
  rest of the pipeline, and jaxlib takes the result in front of its scheduler.
* "jaxlib": decisions on the module that jaxlib has optimized, in front of its
  scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..runtime.jaxlib.options import OptionValue
from .decide import Decided
from .replacements import Replace
from .settings import split_name
from .stages import Stages

# Ends the names of attempts with an option of the compiler that leaves operations to
# XLA's own code; before the names of settings.
WITH_OPTIONS = "_library"


@dataclass(frozen=True)
class Attempt:
    """One way to compile a signature.

    Attributes:
        name: distinguishes the attempts of a planner.
        decided: what was decided before the compilation.
        function: what the trace of the signature calls; None for the plain function.
        replace: for modules of jaxlib's; None leaves them.
        reason: why it need not be compiled; empty if it is to be tried.
        options: of jaxlib's compiler.
        prepare: makes of it the attempt that is to be tried; None if it is this one.
        discard: frees what was made for it, if it is not used.
        is_promising: whether it has forms that have made programs many times as fast.
        min_ns: what a call of plain jax.jit takes at least if it may be faster.
    """

    name: str
    decided: Decided
    function: Callable[..., Any] | None = None
    replace: Replace | None = None
    reason: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    prepare: Callable[[Attempt], Attempt] | None = None
    discard: Callable[[], None] | None = None
    is_promising: bool = False
    min_ns: float = 0.0


class Planner(Protocol):
    """Decides signatures.

    Attributes:
        text: the same exactly if decisions are the same; None if unknown.
        is_auto: whether it decides by hloenv's rules, so that what was measured to be
            best may be kept for other processes, and a function that donates decided.
    """

    text: str | None
    is_auto: bool

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """The ways to try, the most promising first.

        Each is tried before the next is asked for.

        Args:
            stages: of one signature.
        """


def has_options(name: str) -> bool:
    """Whether the attempt of this name has options of the compiler."""
    base, settings = split_name(name)
    return bool(settings) or base.endswith(WITH_OPTIONS)
