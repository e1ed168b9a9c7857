# SPDX-License-Identifier: Apache-2.0
"""`python -m hloenv.tune SCRIPT ...`: runs a script with what was tuned for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from ..errors import ScriptError
from .api import using
from .recording import compile_script, run_script

_MAX_SHOWN = 8


def main() -> int:
    """Runs the script of the command line."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.stderr.write("usage: python -m hloenv.tune SCRIPT [ARGUMENTS]\n")
        return 2
    path = Path(sys.argv[1])
    try:
        code = compile_script(path)
    except (OSError, ScriptError) as error:
        if error.__cause__ is not None:
            return _fail(error.__cause__, None)
        sys.stderr.write(f"hloenv.tune: {error}\n")
        return 1
    try:
        with using() as functions:
            try:
                run_script(path, sys.argv[2:], code)
            finally:
                # Not in the place of what the script itself ends with.
                with contextlib.suppress(Exception):
                    for line in summary(functions, path):
                        sys.stderr.write(f"hloenv.tune: {line}\n")
                    sys.stderr.flush()
    except ScriptError as error:  # the script's own
        cause = error.__cause__ or error
        if isinstance(cause, SystemExit):
            raise cause from None
        return _fail(cause, code)
    return 0


def _fail(error: BaseException, code: CodeType | None) -> int:
    """Shows an error of the script as Python does; returns the exit code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 1


def summary(functions: Iterable[Any], path: Path) -> list[str]:
    """Which functions of a script ran as they were tuned, and why others did not.

    Args:
        functions: of `hloenv.jit`.
        path: of the script.
    """
    tuned: dict[str, None] = {}
    others: dict[str, None] = {}
    is_tuned = True
    for function in functions:
        name = getattr(function, "__name__", "a function")
        for each in function.considered:
            if each.is_used and each.tuned:
                tuned[f"{name}: {each.tuned}"] = None
            elif each.tuned:
                others[f"{name}: tuned, but {each.reason}"] = None
            else:
                is_tuned = False
                others[f"{name}: {each.reason or 'not decided'}"] = None
    if tuned:
        lines = [f"ran as tuned: {each}" for each in tuned]
    elif others:
        lines = [f"ran as plain jax.jit: {each}" for each in others]
        words = "to search on" if is_tuned else "nothing ran as tuned; to tune it"
        lines.append(f"{words}: hloenv tune {path}")
    else:
        lines = [
            "the script has no function of jax.jit that was called; those of "
            "hloenv.jit use by themselves what was tuned"
        ]
    left = len(lines) - _MAX_SHOWN
    return lines if left <= 0 else [*lines[:_MAX_SHOWN], f"and {left} more"]


if __name__ == "__main__":
    sys.exit(main())
