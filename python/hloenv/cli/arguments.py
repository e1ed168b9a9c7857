# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from .._files import check_no_folder
from ..cost import describe_estimator, list_estimators
from ..errors import HloEnvError
from ..hlo.pass_text import parse_pass
from ..hlo.passes import Pass, Pipeline
from ..measurement.optional_store import optional_store
from ..measurement.store import Store
from ..runtime.executable import Engine
from .load import is_function
from .numbers import add_count
from .sandbox import add_isolation

_STORE = "HLOENV_STORE"
MODULE_HELP = (
    "HLO text or a serialized proto, '-' for standard input, or FILE.py:FUNCTION "
    "(also package.module:FUNCTION) for JAX"
)
PASS_HELP = (
    "a pass; repeat the option to capture several passes jointly. With options: "
    "NAME:OPTION=VALUE,...; a pipeline: NAME+NAME; a pipeline that runs to a fixed "
    "point: NAME+NAME* (quote the *)"
)


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    """Adds an action of a command; --json and --verbose may also stand before it."""
    parser = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
    # A default here would override an option given before the action.
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object and nothing else",
    )
    parser.add_argument(
        *("-v", "--verbose"),
        action="store_true",
        default=argparse.SUPPRESS,
        help="print tracebacks of errors",
    )
    return parser


def name_of(make: Callable[[str], object]) -> Callable[[str], str]:
    """A name that `make` accepts, for argparse."""

    def check(text: str) -> str:
        try:
            make(text)
        except HloEnvError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


def add_module(parser: argparse.ArgumentParser) -> None:
    """Adds a MODULE."""
    parser.add_argument("module", metavar="MODULE", help=MODULE_HELP)


def check_output(path: str | None) -> None:
    """Checks that an output can be written to a path, before the work.

    Raises:
        FileNotFoundError: its folder does not exist.
        IsADirectoryError: it is a folder.
    """
    if path is None:
        return
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: its folder does not exist; create it first"
        )
    check_no_folder(Path(path))


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Adds the limits on size, time and memory."""
    add_count(
        parser, "--max-instructions", "reject modules with more than N instructions"
    )
    add_isolation(parser)


def add_passes(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds --pass and --until."""
    add_pass(parser, PASS_HELP, required=required)
    parser.add_argument(
        "--until",
        metavar="POSITION",
        help="first run XLA's own pipeline until it reaches this position: the name or "
        "path of a pass, as 'fusion' or 'simplification/algsimp'; 'algsimp#2' for the "
        "second run of a pass",
    )


def add_pass(
    parser: argparse.ArgumentParser, text: str, *, required: bool = False
) -> None:
    """Adds --pass, which may be repeated, with its help."""
    parser.add_argument(
        *("-p", "--pass"),
        dest="passes",
        metavar="PASS",
        action="append",
        required=required,
        default=None if required else [],
        help=text,
    )


def parse_passes(texts: Sequence[str]) -> list[Pass | Pipeline]:
    """The passes and pipelines that --pass names.

    Raises:
        UnknownPassError, PassOptionError: no such pass or option, or a text that
            does not follow the grammar of `PASS_HELP`.
    """
    return [parse_pass(text) for text in texts]


def add_engine(
    parser: argparse.ArgumentParser,
    *,
    by_module: bool = False,
    default: Engine = "wheel",
) -> None:
    """Adds --engine.

    Args:
        parser: to add it to.
        by_module: whether it is None by default, for `engine_of`.
        default: otherwise.
    """
    text = "jaxlib for FILE.py:FUNCTION, else wheel" if by_module else default
    parser.add_argument(
        "--engine",
        choices=get_args(Engine),
        default=None if by_module else default,
        help="the XLA that compiles and runs: wheel, that of TensorFlow's wheel; "
        f"jaxlib, that of jax.jit, called from Python (default: {text})",
    )


def engine_of(args: argparse.Namespace) -> Engine:
    """The engine that runs `args.module` for its user, if none was given."""
    engine: Engine | None = args.engine
    return engine or ("jaxlib" if is_function(args.module) else "wheel")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Adds --inputs."""
    parser.add_argument(
        "--inputs",
        metavar="FILE",
        help="inputs of all modules, *.npz or *.safetensors (default: random ones)",
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Adds --store, --no-store and --again."""
    add_store_file(parser, "SQLite file that caches measurements")
    parser.add_argument(
        "--no-store", action="store_true", help="neither read nor write the store"
    )
    parser.add_argument(
        "--again", action="store_true", help="measure again what the store holds"
    )


def add_estimator(
    parser: argparse.ArgumentParser, what: str, default: str | None
) -> None:
    """Adds --estimator.

    Args:
        parser: of the command.
        what: it estimates, for the help.
        default: its name; None where the text states the default.
    """
    names = (*list_estimators(), *list_estimators(families=True))
    listed = "; ".join(f"{name}: {describe_estimator(name).summary}" for name in names)
    parser.add_argument(
        "--estimator",
        metavar="NAME",
        type=name_of(describe_estimator),
        default=default,
        help=f"the cost model {what}. {listed}; or FILE.py:NAME".replace("%", "%%"),
    )


def add_store_file(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --store, the path of what the text says."""
    parser.add_argument(
        "--store",
        metavar="FILE",
        type=Path,
        help=f"{what} (default: $HLOENV_STORE, or hloenv/store.sqlite in the user's "
        "cache folder)",
    )


@contextlib.contextmanager
def usual_store(args: argparse.Namespace) -> Iterator[None]:
    """Sets the store in which policies keep kernel times from `add_store`'s arguments.

    With --no-store that is a temporary file, deleted at the end.
    """
    if args.no_store:
        with (
            tempfile.TemporaryDirectory() as folder,
            _store_at(Path(folder, "store.sqlite")),
        ):
            yield
    elif args.store is not None:
        with _store_at(args.store):
            yield
    else:
        yield


@contextlib.contextmanager
def _store_at(path: Path) -> Iterator[None]:
    before = os.environ.get(_STORE)
    os.environ[_STORE] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STORE]
        else:
            os.environ[_STORE] = before


@contextlib.contextmanager
def open_store(args: argparse.Namespace) -> Iterator[Store | None]:
    """The store that the arguments of `add_store` name, or None.

    None, after a warning, where it cannot be opened.
    """
    store = None
    if not args.no_store:
        store = optional_store(args.store)
    with store or contextlib.nullcontext():
        yield store


def add_stops(parser: argparse.ArgumentParser, text: str) -> None:
    """Declares --stop, as often as wanted; `text` is its help."""
    parser.add_argument(
        "--stop",
        dest="stops",
        metavar='"POSITION: PASS PASS ..."',
        action="append",
        type=_stop_text,
        default=[],
        help=text,
    )


def _stop_text(text: str) -> tuple[str, list[str]]:
    """Position and passes of --stop, for argparse."""
    where, colon, names = text.partition(":")
    if not colon or not names.split():
        raise argparse.ArgumentTypeError(
            "must be 'POSITION: PASS PASS ...', such as "
            f"'fusion: fusion general-fusion', got {text!r}"
        )
    return where.strip(), names.split()
