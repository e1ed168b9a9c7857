# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of jitted functions."""

from __future__ import annotations

import sys
from typing import Any

from .wrapping import qualified_name


class Pickled:
    """A jitted function that is pickled by name, as functions are, where it has one.

    Others (of a lambda, of a local function, under another name than the function's)
    are pickled as their function and options. cloudpickle, which Ray, joblib and Dask
    use, takes those too, and functions of a script or a notebook, which other
    processes do not find by name.
    """

    # The function, and the other arguments of the constructor.
    _made_with: tuple[Any, dict[str, Any]]

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce__(self) -> Any:
        """By name or by value."""
        me: Any = self
        name, module = qualified_name(me), getattr(me, "__module__", "")
        caller = sys._getframe(1).f_globals.get("__name__", "")
        is_for_others = "cloudpickle" in caller and module == "__main__"
        if not is_for_others and _named(module, name) is self:
            return name
        # The state is pickled after this object, to which the function may refer.
        return _new, (type(self),), self._made_with

    def __setstate__(self, state: tuple[Any, dict[str, Any]]) -> None:
        function, options = state
        self.__init__(function, **options)  # type: ignore[misc]


def _new(cls: Any) -> Any:
    return cls.__new__(cls)


def _named(module: str, name: str) -> Any:
    """What a module has under a qualified name; None if nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
