# SPDX-License-Identifier: Apache-2.0
"""Arguments that all trainings have, and the configuration that they give."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ArgumentError
from ..numbers import add_count

if TYPE_CHECKING:
    from ...learn.config_file import FileConfig

_C = TypeVar("_C", bound="FileConfig")


def add_run_arguments(
    parser: argparse.ArgumentParser,
    *,
    steps: int,
    least_steps: int = 1,
    has_small: bool = False,
) -> None:
    """Declares CONFIG, --output, --resume, --seed and --steps.

    Args:
        parser: of the kind of training.
        steps: by default, for the help.
        least_steps: that --steps takes.
        has_small: whether there is a configuration of some minutes, --small.
    """
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a TOML file (default: no settings)"
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FOLDER",
        required=True,
        help="of the run; made if it does not exist",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in the folder, without CONFIG or with the same",
    )
    if has_small:
        parser.add_argument(
            "--small",
            action="store_true",
            help="a run of some minutes on small modules, without CONFIG",
        )
    add_count(parser, "--seed", "in place of CONFIG's (0)", least=0)
    add_count(parser, "--steps", f"in place of CONFIG's ({steps:,})", least=least_steps)


def config_of(
    args: argparse.Namespace,
    config_class: type[_C],
    *names: str,
    small: Mapping[str, Any] | None = None,
) -> _C:
    """The configuration that the command line describes.

    Args:
        args: of the command line.
        config_class: of the kind of training.
        *names: of settings that have an argument, beside seed and steps.
        small: settings of --small; None if the kind has none.

    Raises:
        ArgumentError: --small and another configuration; a file that is wrong; a folder
            without a run.
    """
    is_small = small is not None and args.small
    if is_small and (args.config is not None or args.resume):
        raise ArgumentError("--small is a configuration: leave CONFIG and --resume out")
    if args.config is not None:
        config = config_class.read(args.config)
    elif args.resume:
        config = config_class.of_run(args.output)
    else:
        config = config_class.from_dict(small if is_small and small else {})
    given = {name: getattr(args, name) for name in ("seed", "steps", *names)}
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(config, **changes)
