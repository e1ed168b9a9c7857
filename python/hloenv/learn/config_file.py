# SPDX-License-Identifier: Apache-2.0
"""Configurations that TOML files, and folders of runs, hold: checked dataclasses."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from .._files import replacing
from .._plugins import split_file
from ..errors import ArgumentError, ParseError
from ..hlo.reading import decoded

_FILE = "config.json"
# Of what a checkpoint may ask for: larger networks take gigabytes.
MAX_WIDTH = 4096
MAX_LAYERS = 16


@dataclass(frozen=True)
class FileConfig:
    """Base of configurations; their fields are the settings of the file.

    Attributes:
        MAY_CHANGE: settings that may differ where a run is resumed.
    """

    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset({"steps"})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a TOML file.

        Raises:
            FileNotFoundError: there is none.
            ArgumentError: it is no TOML, or has unknown keys or values of other types.
        """
        data = Path(path).read_bytes()
        try:
            return cls.from_dict(tomllib.loads(decoded(data)))
        except (ParseError, tomllib.TOMLDecodeError, ArgumentError) as error:
            raise ArgumentError(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From names and values, as in the file.

        Raises:
            ArgumentError: an unknown name, or a value of another type.
        """
        fields = {each.name: each for each in dataclasses.fields(cls)}
        checked = {}
        for name, value in values.items():
            if name not in fields:
                raise ArgumentError(
                    f"no setting is named {name!r}; there are {', '.join(fields)}"
                )
            checked[name] = _checked(name, value, str(fields[name].type))
        return cls(**checked)

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` takes, as JSON or TOML can hold it."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }

    def check_least(self, least: float, *names: str) -> None:
        """Checks that settings are finite and at least a number.

        Raises:
            ArgumentError: one of them is not.
        """
        self.check_finite(*names)
        for name in names:
            if not getattr(self, name) >= least:
                raise ArgumentError(
                    f"{name} must be >= {least}, got {getattr(self, name)}"
                )

    def check_finite(self, *names: str) -> None:
        """Checks that settings are neither infinite nor NaN.

        Raises:
            ArgumentError: one of them is.
        """
        for name in names:
            if not -math.inf < getattr(self, name) < math.inf:
                raise ArgumentError(f"{name} must be finite, got {getattr(self, name)}")

    def check_no_file(self, *names: str) -> None:
        """Checks that settings name no part in a Python file, "FILE.py:NAME".

        A checkpoint has them, and reading one must not run a file.

        Raises:
            ArgumentError: one of them does.
        """
        for name in names:
            value = getattr(self, name)
            parts = [value, value.partition(":")[2]]
            if any(split_file(part) for part in parts):
                raise ArgumentError(
                    f"{name} may not name a file, got {value!r}: a checkpoint would "
                    "run it where it is read; register it in the file, name it, and "
                    "give the file with --import"
                )

    @classmethod
    def of_run(cls, folder: str | os.PathLike[str]) -> Self:
        """The configuration of the run in a folder.

        Raises:
            ArgumentError: there is none.
        """
        path = Path(folder) / _FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ArgumentError(f"{folder} has no run to resume") from None
        except ValueError as error:
            raise ArgumentError(f"{path} is damaged, no JSON: {error}") from None
        try:
            if not isinstance(values, dict):
                raise ArgumentError("a configuration is an object of settings")
            return cls.from_dict(values)
        except ArgumentError as error:
            raise ArgumentError(
                f"{path} is no configuration of such a run; another command of "
                f"`hloenv train` may have begun it: {error}"
            ) from None

    def write_to(self, folder: Path) -> None:
        """Writes it into the folder of a run, which is made if it does not exist.

        Raises:
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / _FILE) as draft:
            draft.write_text(json.dumps(self.to_dict(), indent=1))

    def check_folder(
        self, folder: str | os.PathLike[str], *, resume: bool = False
    ) -> None:
        """Checks that a run may start, or continue, in a folder.

        Raises:
            ArgumentError: it has a run already, or to resume, none, or one with another
                configuration.
        """
        if not resume:
            if (Path(folder) / _FILE).exists():
                raise ArgumentError(
                    f"{folder} has a run already; resume it, or give another folder"
                )
            return
        found, given = self.of_run(folder).to_dict(), self.to_dict()
        differing = [
            f"{key} {found[key]!r}, not {given[key]!r}"
            for key in given
            if found[key] != given[key] and key not in self.MAY_CHANGE
        ]
        if differing:
            raise ArgumentError(
                f"the run in {folder} has another configuration: {'; '.join(differing)}"
            )


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "dict[str, Any]": (dict,),
}


def _checked(name: str, value: Any, type_: str) -> Any:
    if type_.startswith("tuple["):
        element = type_.removeprefix("tuple[").partition(",")[0]
        if not isinstance(value, (list, tuple)):
            raise ArgumentError(f"{name} must be a list, got {value!r}")
        return tuple(_checked(name, each, element) for each in value)
    is_right = isinstance(value, _TYPES[type_])
    if isinstance(value, bool) and type_ != "bool":
        is_right = False
    if not is_right:
        raise ArgumentError(f"{name} must be {type_.partition('[')[0]}, got {value!r}")
    return value


def check_width(width: int) -> None:
    """Checks the width of a network.

    Raises:
        ArgumentError: it is not from 1 to `MAX_WIDTH`.
    """
    if not 1 <= width <= MAX_WIDTH:
        raise ArgumentError(f"width must be from 1 to {MAX_WIDTH}, got {width}")
