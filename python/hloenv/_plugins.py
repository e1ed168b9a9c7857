# SPDX-License-Identifier: Apache-2.0
"""Parts that users write: files that are imported, entry points of packages.

A file is imported because a command was given `--import FILE`, or because a name is
`FILE.py:NAME`. An installed package offers parts by an entry point: of the group
"hloenv.policies" for policies, "hloenv.search" for searches, "hloenv.cost" for
estimators, "hloenv.passes" for passes in Python. Each entry point names a module, or a
function without arguments; both register what they offer.

Files of `--import` go into the environment, so that child processes import them too.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .errors import ArgumentError, ArgumentTypeError, HloEnvError

_VARIABLE = "HLOENV_IMPORT"


class PluginError(HloEnvError, ImportError):
    """A file or an installed package that offers parts cannot be imported."""


class PluginWarning(UserWarning):
    """An entry point of an installed package fails; what it offers is missing."""


def add_import(path: str | os.PathLike[str]) -> None:
    """Imports a Python file here and in child processes, for what it registers.

    Raises:
        PluginError: it cannot be imported.
    """
    file = str(Path(path).resolve())
    _import_file(file)
    known = _files()
    if file not in known:
        os.environ[_VARIABLE] = os.pathsep.join([*known, file])


def load_imports() -> None:
    """Imports the files of `add_import`, of a parent process too.

    Raises:
        PluginError: one of them cannot be imported.
    """
    for file in _files():
        _import_file(file)


@functools.cache
def load_entry_points(group: str) -> None:
    """Runs the entry points of a group, once; warns about those that fail.

    A broken package must not stop commands that do not use it.
    """
    for entry in _entry_points().select(group=group):
        try:
            found = entry.load()
            if not isinstance(found, ModuleType):
                found()
        except Exception as error:
            package = entry.dist.name if entry.dist else "a package"
            warnings.warn(
                f"entry point {entry.name!r} of {package} (group {group}) fails: "
                f"{type(error).__name__}: {error}; update or uninstall {package}",
                PluginWarning,
                stacklevel=2,
            )


@functools.cache
def _entry_points() -> Any:
    """Those of all installed packages, whose files are read once."""
    return importlib.metadata.entry_points()


def split_file(spec: str) -> tuple[str, str] | None:
    """The file and the name of `my.py:policy`; None for anything else."""
    file, colon, name = spec.rpartition(":")
    return (file, name) if colon and file.endswith(".py") and name else None


def attribute_of_file(file: str, name: str) -> Any:
    """What a Python file calls `name`.

    Raises:
        PluginError: the file cannot be imported.
        ArgumentError: it has no such name.
    """
    module = _import_file(str(Path(file).resolve()))
    if not hasattr(module, name):
        known = ", ".join(sorted(each for each in vars(module) if each[0] != "_"))
        raise ArgumentError(f"{file} has no {name!r}; it has {known or 'no names'}")
    return getattr(module, name)


def origin_of(make: object) -> str:
    """Where a part comes from: "hloenv", a file, or a module."""
    if isinstance(make, str):
        return make.partition(":")[0].partition(".")[0]
    module = getattr(make, "__module__", None) or type(make).__module__
    if module.partition(".")[0] == "hloenv":
        return "hloenv"
    return _NAMES.get(module, module)


def module_of_caller() -> str:
    """The module outside of hloenv that called it; "hloenv" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != "hloenv":
            return module
        frame = frame.f_back
    return "hloenv"


def check_entry(name: str, summary: object, make: object) -> None:
    """Checks what a user registers under a name.

    Raises:
        ArgumentTypeError: the summary is no text, or `make` is neither a path nor an
            object.
    """
    if not isinstance(summary, str) or (isinstance(make, str) and ":" not in make):
        raise ArgumentTypeError(
            f"{name!r} has the summary {summary!r} and the maker {make!r}; the summary "
            "must be a sentence, and the maker an object or its location, "
            "'package.module:name'; give name, summary, maker"
        )


def line_of(error: BaseException) -> str:
    """The last line of an imported file that an error passed: "my.py:7", or ""."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = _NAMES.get(trace.tb_frame.f_globals.get("__name__", ""))
        if file is not None:
            found = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def check_call(
    make: Callable[..., object], form: str, *args: Any, **kwargs: Any
) -> None:
    """Checks that `make` takes these arguments.

    Args:
        make: of a user.
        form: its name and its arguments as they should be, for the message.
        *args: positional arguments.
        **kwargs: those by name.

    Raises:
        ArgumentError: it does not.
    """
    try:
        signature = inspect.signature(make)
    except ValueError:  # of a function in C
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(
            f"{form.partition('(')[0]} has the arguments {signature}, and is called "
            f"with others ({error}); define it as {form}"
        ) from None


def digest_of(origin: str) -> str:
    """A hash of the file that a part comes from; "" where it is of no single file."""
    if not origin.endswith(".py"):
        return ""
    return hashlib.sha256(Path(origin).read_bytes()).hexdigest()[:12]


# From the names of modules that are files to the files.
_NAMES: dict[str, str] = {}


def _files() -> list[str]:
    return [each for each in os.environ.get(_VARIABLE, "").split(os.pathsep) if each]


@functools.cache
def _import_file(file: str) -> ModuleType:
    name = f"hloenv_import_{len(_NAMES)}_{Path(file).stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise PluginError(f"there is no Python file {file}")
    module = importlib.util.module_from_spec(spec)
    _NAMES[name] = file
    # Before it runs, as Python does: dataclasses and pickles look there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(
            f"{file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module
