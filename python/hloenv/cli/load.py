# SPDX-License-Identifier: Apache-2.0
"""Loads the MODULE argument of a command."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ..dataset import find_benchmarks
from ..errors import HloEnvError, InvalidModuleError, ParseError, PositionError
from ..hlo.module import HloModule, check_size, read_text_or_proto
from .sandbox import reading

_OTHER_KINDS = {
    ".py": "{0} is a Python file; name a function in it: {0}:FUNCTION",
    ".mlir": "{0} is MLIR; only HLO is supported: save it with "
    "jax.jit(fn).lower(...).as_text('hlo')",
}


class FunctionError(HloEnvError, RuntimeError):
    """The Python function of a MODULE argument could not be found, or failed."""


def is_function(source: str) -> bool:
    """Whether `load_module` takes it for a function of a Python file or module."""
    is_uri = source.startswith("hloenv://")
    return ":" in source and not is_uri and not Path(source).exists()


def load_module(source: str, max_instructions: int | None = None) -> HloModule:
    """Loads a module.

    Args:
        source: a path to HLO text or a proto, "-" for standard input, or
            "FILE.py:FUNCTION" or "package.module:FUNCTION", see `from_function`, or
            a URI as `hloenv.dataset.find_benchmarks` takes it.
        max_instructions: rejects larger modules.

    Raises:
        OSError, ParseError: the file cannot be read, or is not a module.
        FunctionError: there is no such function, or it failed.
        ModuleTooLargeError: it is larger than the limit.
    """
    if source == "-":
        data = sys.stdin.buffer.read()
        if not data.strip():
            raise ParseError(
                "standard input is empty; pipe HLO text or a proto into it"
            )
        with reading():
            module = _from_bytes(data)
    elif source.startswith("hloenv://"):
        (benchmark, *_) = find_benchmarks(source)
        with reading():
            module = benchmark.load()
    elif is_function(source):
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
    """The module that a Python function names.

    The function is called without arguments. Its result selects the module:

    * an `HloModule`: this one;
    * a `jax.stages.Lowered`, as `jax.jit(fn).lower(...)` returns: its module;
    * a tuple `(fn, *args)` with a callable `fn`: `fn`, lowered by JAX for these
      arguments;
    * anything else: the function itself, lowered without inputs.

    Its output to stdout is redirected to stderr.

    Raises:
        FunctionError: there is no such function, or it raised something.
    """
    with _calling(source):
        return _lower(*_called(source))


def value_of(source: str) -> Any:
    """What the function of `from_function` returns; the function itself for None.

    Raises:
        FunctionError: there is no such function, or it raised something.
    """
    with _calling(source):
        function, value = _called(source)
        return function if value is None else value


@contextlib.contextmanager
def _calling(source: str) -> Iterator[None]:
    with contextlib.redirect_stdout(sys.stderr):
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, HloEnvError):
                raise
            raise FunctionError(
                f"{source}: {type(error).__name__}: {error} (--verbose: traceback)"
            ) from error


def _called(source: str) -> tuple[Any, Any]:
    """A function, and its result."""
    place, _, name = source.rpartition(":")
    function = getattr(_import(place), name)
    needed = _needed_arguments(function)
    if needed:
        raise FunctionError(
            f"{source} needs arguments ({', '.join(needed)}), but is called without; "
            "name a function without arguments that returns it with them, as in "
            f"`def {name}_example(): return {name}, {', '.join(needed)}`"
        )
    return function, function()


def _needed_arguments(function: Any) -> list[str]:
    """Names of the parameters without a default; none if that is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in parameters
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def _import(place: str) -> ModuleType:
    if not place.endswith(".py"):
        if Path(place).is_file():
            raise FunctionError(
                f"{place} is not a Python file, so that it has no function; name it "
                "alone, or FILE.py:FUNCTION"
            )
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"file {place} does not exist")
    # As for a script, imports from the file's own folder work.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _lower(function: Any, value: Any) -> HloModule:
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
    except (ParseError, InvalidModuleError, PositionError) as error:
        raise type(error)(f"standard input: {error}") from None
