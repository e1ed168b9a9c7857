# SPDX-License-Identifier: Apache-2.0
"""Runs a Python script and collects the functions of jax.jit that it calls.

While the script runs, `jax.jit` and `hloenv.jit` make functions that count their calls
and their time, and keep the arguments of the first call of each signature. Calls inside
of another transformation of jax belong to the outermost function.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, MethodType, ModuleType
from typing import Any, NoReturn

from ..errors import ScriptError
from ..jax.wrapping import (
    StaticArguments,
    copy_arrays,
    error_text,
    name_of,
    qualified_name,
    top_level_test,
)
from ..runtime.jaxlib.package import require_jax
from .deadline import Deadline, TimeUpError
from .patching import identity_of, jit_replaced, own_jit_replaced

# Of the arguments of all functions; where they are larger, a function is not tuned.
_MAX_KEPT_BYTES = 1 << 31


@dataclass
class Hot:
    """A function of jax.jit for one signature, as a script has called it.

    Attributes:
        name: of the function.
        fn: the function, as it was given to jax.jit.
        options: of jax.jit.
        args: copies of those of its first call; None if they were too large to keep.
        kwargs: of its first call.
        calls: number of its calls.
        seconds: of all calls but the first, which compiles.
    """

    name: str
    fn: Callable[..., Any]
    options: dict[str, Any]
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any]
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Recording:
    """A run of a script.

    Attributes:
        functions: that it has called, one for each signature, the one that takes most
            time first.
        seconds: that it ran.
        is_complete: whether it came to its end.
        is_interrupted: whether Ctrl-C has ended it.
        failure: what it ended with, after it had called functions.
    """

    functions: tuple[Hot, ...]
    seconds: float
    is_complete: bool
    is_interrupted: bool = False
    failure: ScriptError | None = None

    @property
    def calls_text(self) -> str:
        """How many functions were called, and with how many signatures if with more."""
        signatures = len(self.functions)
        functions = len({id(each.fn) for each in self.functions})
        noun = "function was" if functions == 1 else "functions were"
        more = f" with {signatures} signatures" if signatures > functions else ""
        return f"{functions} {noun} called{more}"

    def worth_tuning(self, *, share: float, most: int) -> list[Hot]:
        """The functions in which the script spends its time.

        Args:
            share: of the time of all functions, that one must take.
            most: how many.
        """
        total = sum(each.seconds for each in self.functions)
        return [
            each
            for each in self.functions
            if each.args is not None and each.seconds > share * total
        ][:most]


class _Recorder:
    """What is known of the functions of one script."""

    def __init__(self, seconds: float) -> None:
        self.hot: dict[Any, Hot] = {}
        self.deadline = Deadline(seconds)
        self._kept_bytes = 0
        self._is_at_top_level = top_level_test()
        self._jax = require_jax("hloenv tune")

    def call(self, recorded: _Recorded, args: Any, kwargs: Any) -> Any:
        """Calls a function and notes the time."""
        if not self._is_at_top_level():
            return recorded.jitted(*args, **kwargs)
        self.deadline.check()
        key = self._key(recorded, args, kwargs)
        found = None if key is None else self.hot.get(key)
        if key is not None and found is None:
            kept = self._kept(args, kwargs)
            found = self.hot[key] = Hot(
                name_of(recorded.fn), recorded.fn, recorded.options, *kept
            )
        started = time.perf_counter()
        outputs = self._jax.block_until_ready(recorded.jitted(*args, **kwargs))
        elapsed = time.perf_counter() - started
        if found is not None:
            found.calls += 1
            if found.calls > 1:
                found.seconds += elapsed
        return outputs

    def _key(self, recorded: _Recorded, args: Any, kwargs: Any) -> Any:
        """The function and the types of its arguments; None if they have no key.

        Static arguments count by value: jax compiles for each of them.
        """
        leaves, tree = self._jax.tree.flatten((args, kwargs))
        kinds = tuple(
            (each.shape, str(each.dtype))
            if hasattr(each, "dtype") and hasattr(each, "shape")
            else type(each)
            for each in leaves
        )
        static = tuple(recorded.static.values(args, kwargs))
        key = recorded.identity, tree, kinds, static
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _kept(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Copies of the arguments, which another function may change or donate."""
        leaves = self._jax.tree.leaves((args, kwargs))
        size = sum(getattr(each, "nbytes", 0) for each in leaves)
        if self._kept_bytes + size > _MAX_KEPT_BYTES:
            return None, {}
        self._kept_bytes += size
        kept: tuple[Any, Any] = copy_arrays(self._jax, (args, kwargs))
        return kept


class _Recorded:
    """A function of jax.jit whose calls are recorded."""

    def __init__(
        self,
        recorder: _Recorder,
        fn: Callable[..., Any],
        options: dict[str, Any],
        jitted: Any,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._recorder = recorder
        self.fn = fn
        self.options = options
        self.jitted = jitted
        self.static = StaticArguments.of(jitted)
        self.identity: Any = identity_of(fn, options) or self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.call(self, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        """Copied and pickled as functions are: by name."""
        return qualified_name(self.fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jitted, name)


def record(path: Path, argv: Sequence[str], *, seconds: float) -> Recording:
    """Runs a script as `python SCRIPT ARGUMENTS` does, and records its functions.

    Args:
        path: of the script.
        argv: its arguments.
        seconds: after which the script is ended: by its next call of a function, or
            soon anyway if this is the main thread.

    Raises:
        OSError: there is no such script, or it cannot be read.
        ImportError: jax is missing.
        KeyboardInterrupt: Ctrl-C ends it before it has called a function.
        ScriptError: it fails before that.
    """
    code = compile_script(path)
    recorder = _Recorder(seconds)
    started = time.perf_counter()
    is_complete, is_interrupted = True, False
    failure: ScriptError | None = None

    def make(fn: Callable[..., Any], options: dict[str, Any], plain: Any) -> _Recorded:
        return _Recorded(recorder, fn, options, plain(fn, **options))

    try:
        with (
            jit_replaced(make, is_kept=True),
            own_jit_replaced(make),
            _exits_raised(),
            recorder.deadline.enforced(code),
        ):
            run_script(path, argv, code)
    except TimeUpError:
        is_complete = False
    except (KeyboardInterrupt, ScriptError) as error:
        if not recorder.hot:
            raise
        is_complete = False
        is_interrupted = isinstance(error, KeyboardInterrupt)
        failure = error if isinstance(error, ScriptError) else None
    functions = sorted(recorder.hot.values(), key=lambda each: -each.seconds)
    seconds = time.perf_counter() - started
    return Recording(tuple(functions), seconds, is_complete, is_interrupted, failure)


@contextlib.contextmanager
def _exits_raised() -> Iterator[None]:
    """`os._exit` in the main thread is SystemExit: this process goes on."""
    process, end = os.getpid(), os._exit

    def exit_(status: int) -> NoReturn:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and os.getpid() == process:  # and not in a child
            raise SystemExit(status)
        end(status)

    os._exit = exit_
    try:
        yield
    finally:
        os._exit = end


def compile_script(path: Path) -> CodeType:
    """The code of a script.

    Raises:
        FileNotFoundError: there is no such script.
        OSError: it cannot be read.
        ScriptError: it is a folder, or no Python.
    """
    if path.is_dir():
        raise ScriptError(f"{path} is a folder; give a Python file in it")
    if not path.exists():
        raise FileNotFoundError(f"file {path} does not exist")
    name = os.path.abspath(path)  # noqa: PTH100 (as Python: links are kept)
    with io.open_code(name) as file:
        text = file.read()
    try:
        return compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _failed(path, error) from error


def run_script(path: Path, argv: Sequence[str], code: CodeType) -> None:
    """Runs a script as the program `__main__`.

    Args:
        path: of the script.
        argv: its arguments.
        code: of `compile_script`.

    Raises:
        ScriptError: it fails, or ends with another exit code than 0.
    """
    name = code.co_filename
    module = ModuleType("__main__")
    module.__file__ = name
    module.__loader__ = SourceFileLoader("__main__", name)
    vars(module).update(__builtins__=builtins, __cached__=None)
    before = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = [str(path), *argv]
    # As for a script, imports from its own folder work.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules["__main__"] = module
    try:
        exec(code, vars(module))
    except SystemExit as error:
        if error.code not in (None, 0):
            raise ScriptError(f"{path} ended with exit code {error.code}") from error
    except Exception as error:
        raise _failed(path, error) from error
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before


def _failed(path: Path, error: Exception) -> ScriptError:
    return ScriptError(
        f"{path} failed with {type(error).__name__}: {error_text(error)} "
        "(--verbose: traceback)"
    )
