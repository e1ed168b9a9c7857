# SPDX-License-Identifier: Apache-2.0
"""Settings of training runs as TOML files, checked."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..errors import ArgumentError


@dataclass(frozen=True)
class Settings:
    """Base of the settings of a kind of training; a dataclass with defaults."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a TOML file.

        Raises:
            FileNotFoundError: there is none.
            ArgumentError: it is no TOML, or has unknown keys or values of other types.
        """
        data = Path(path).read_bytes()
        try:
            return cls.from_dict(tomllib.loads(data.decode()))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, ArgumentError) as error:
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
