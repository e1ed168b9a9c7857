# SPDX-License-Identifier: Apache-2.0
"""Python functions from module to module as candidate passes.

What the function changes becomes alternatives; `rules.changes` finds them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from ..errors import HloEnvError, PassError, PassOptionError
from ..hlo.module import HloModule, as_module
from ..hlo.numerics import Numerics
from ..hlo.pass_info import OptionValue, PassInfo, PassOption
from ..hlo.python_passes import Proposals, add_pass, check_same_kind
from .changes import proposals_of
from .rule import is_rule_name

Function = Callable[[HloModule], Any]


# How often a pass may be running inside itself.
_MAX_DEPTH = 10
_running = threading.local()


class _EndlessError(PassError):
    """A pass captures itself again and again."""


@contextlib.contextmanager
def _entered(name: str) -> Iterator[None]:
    """Counts the runs of a pass inside itself, in this thread."""
    depths: Counter[str] = _running.__dict__.setdefault("depths", Counter())
    if depths[name] >= _MAX_DEPTH:
        raise _EndlessError(
            f"the function of pass {name!r} runs the pass {name!r} again, {_MAX_DEPTH} "
            "times inside itself; leave the pass out where its function captures"
        )
    depths[name] += 1
    try:
        yield
    finally:
        depths[name] -= 1


class FunctionPass:
    """A candidate pass that asks a Python function for another module.

    Attributes:
        function: gets a module; returns a module, HLO text or a path.
        info: the description of the pass.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = "",
        regions: bool = False,
        numerics: Numerics = "rounding",
    ) -> None:
        """Makes a pass; `register_pass` also registers it.

        Raises:
            PassOptionError: it is not a function, or the name is not lower case words
                joined by "-", or there is no such class of numerics.
        """
        if not callable(function):
            raise PassOptionError(
                f"a pass must be a function from HloModule to HloModule, got "
                f"{type(function).__name__}"
            )
        own = getattr(function, "__name__", "")
        name = name if name != "" else _name_of(own)
        if not is_rule_name(name):
            raise PassOptionError(
                f"the name of a pass must be lower case words joined by '-', got "
                f"{name!r}; give one: register_pass(FUNCTION, name='my-pass')"
            )
        if numerics not in (classes := get_args(Numerics)):
            raise PassOptionError(
                f"numerics must be one of {', '.join(classes)}, got {numerics!r}"
            )
        self.function = function
        doc = (getattr(function, "__doc__", "") or "").strip().partition("\n")[0]
        self.info = PassInfo(
            name=name,
            summary=doc or f"The Python function {own or name}.",
            options=(
                PassOption(
                    "regions",
                    "bool",
                    regions,
                    "Makes an alternative of each part of the changes, which must be "
                    "right by itself, in place of one.",
                ),
            ),
            candidate=True,
            class_name=f"{getattr(function, '__module__', '')}.{own or name}",
            numerics=numerics,
        )

    def propose(
        self, module: HloModule, options: Mapping[str, OptionValue]
    ) -> Proposals:
        """The changes of the function.

        Raises:
            PassError: it fails, returns no module, or one with other inputs or outputs
                or with a change that no replacement of arrays gives.
        """
        changed = self._call(module)
        return proposals_of(
            self.info.name, module, changed, split=bool(options.get("regions", False))
        )

    def _call(self, module: HloModule) -> HloModule:
        name = self.info.name
        returned: Any = None
        try:
            with _entered(name):
                returned = self.function(module)
            changed = as_module(returned)
        except _EndlessError:
            raise
        except Exception as error:
            reason = f"fails on {module.name!r}: {type(error).__name__}: {error}"
            if isinstance(returned, str) and not isinstance(error, HloEnvError):
                reason = (
                    "returned text that is neither HLO nor a path for "
                    f"{module.name!r}: {error}"
                )
            raise PassError(f"the function of pass {name!r} {reason}") from error
        if changed.entry_layout != module.entry_layout:
            raise PassError(
                f"the function of pass {name!r} changes the module's inputs and "
                f"outputs from {module.entry_layout} to {changed.entry_layout}; it "
                "must keep them"
            )
        return changed


def _name_of(own: str) -> str:
    """Name of the pass of a function; "" if it has none, as a lambda."""
    return "" if own == "<lambda>" else "-".join(own.lower().replace("_", " ").split())


def register_pass(
    function: Function | None = None,
    *,
    name: str = "",
    regions: bool = False,
    numerics: Numerics = "rounding",
) -> Any:
    """Registers a Python function from module to module as a candidate pass.

    Also a decorator, with or without arguments.

    Args:
        function: gets an `HloModule`; returns a module, HLO text or a path. It must
            keep the module's inputs and outputs.
        name: of the pass, lower case words joined by "-"; by default the function's,
            with "-" for "_". A lambda needs one.
        regions: whether each part of the changes is an alternative, by default. Each
            part must then be right by itself.
        numerics: "exact", "rounding" or "unsafe", as `describe_pass` shows it.

    Returns:
        The function.

    Raises:
        PassOptionError: as `FunctionPass`, or hloenv has a pass of this name, or there
            is a rule of this name.
    """
    if function is None:
        return lambda given: register_pass(
            given, name=name, regions=regions, numerics=numerics
        )
    made = FunctionPass(function, name=name, regions=regions, numerics=numerics)
    check_same_kind(made)
    add_pass(made)
    return function
