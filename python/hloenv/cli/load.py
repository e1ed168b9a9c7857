# SPDX-License-Identifier: Apache-2.0
"""Loads what a command line calls MODULE."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import HloEnvError, InvalidModuleError, ParseError, PositionError
from ..hlo.module import HloModule, check_size, read_text_or_proto
from .sandbox import reading

_OTHER_KINDS = {
    ".py": "{0} is Python: name a function in it, as {0}:FUNCTION",
    ".mlir": "{0} is MLIR, which is not read here: give HLO, as "
    "jax.jit(fn).lower(...).as_text('hlo') writes it",
}


class FunctionError(HloEnvError, RuntimeError):
    """A Python function that was to give a module could not be found, or failed."""


def load_module(source: str, max_instructions: int | None = None) -> HloModule:
    """Loads a module.

    Args:
        source: a path to HLO text or a proto, "-" for standard input, or
            "FILE.py:FUNCTION" or "package.module:FUNCTION", see `from_function`.
        max_instructions: refuses larger modules.

    Raises:
        OSError, ParseError: the file cannot be read, or holds no module.
        FunctionError: there is no such function, or it failed.
        ModuleTooLargeError: it is larger than the limit.
    """
    if source == "-":
        data = sys.stdin.buffer.read()
        if not data.strip():
            raise ParseError("standard input is empty; it has to hold a module")
        with reading():
            module = _from_bytes(data)
    elif ":" in source and not Path(source).exists():
        module = from_function(source)
    elif source.endswith((".py", ".mlir")):
        raise ParseError(_OTHER_KINDS[Path(source).suffix].format(source))
    else:
        with reading():
            module = HloModule.from_file(source)
    if max_instructions is not None:
        check_size(module, max_instructions)
    return module


def from_function(source: str) -> HloModule:
    """The module that a Python function stands for.

    The function is called without arguments. What it returns decides:

    * an `HloModule`: this one;
    * a `jax.stages.Lowered`, as `jax.jit(fn).lower(...)` gives: what was lowered;
    * a tuple `(fn, *args)` whose first part can be called: `fn`, lowered by JAX for
      these arguments;
    * anything else: the function itself is lowered, as one without inputs.

    What it prints goes to stderr.

    Raises:
        FunctionError: there is no such function, or it raised something.
    """
    place, _, name = source.rpartition(":")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            function = getattr(_import(place), name)
            return _lower(function)
        except (Exception, SystemExit) as error:
            if isinstance(error, HloEnvError):
                raise
            raise FunctionError(
                f"{source}: {type(error).__name__}: {error} (--verbose shows where)"
            ) from error


def _import(place: str) -> ModuleType:
    if not place.endswith(".py"):
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    # What the file imports from beside itself is found, as if it ran as a script.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _lower(function: Any) -> HloModule:
    value = function()
    if isinstance(value, HloModule):
        return value
    if isinstance(value, tuple) and value and callable(value[0]):
        return HloModule.from_jax(value[0], *value[1:])
    if hasattr(value, "compiler_ir"):
        return HloModule.from_jax(value)
    return HloModule.from_jax(function)


def _from_bytes(data: bytes) -> HloModule:
    try:
        return read_text_or_proto(data)
    except (ParseError, UnicodeDecodeError) as error:
        raise ParseError(f"standard input: {error}") from None
    except (InvalidModuleError, PositionError) as error:
        raise type(error)(f"standard input: {error}") from None
