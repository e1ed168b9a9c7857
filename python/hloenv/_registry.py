# SPDX-License-Identifier: Apache-2.0
"""Registries: entries by name, families of entries, lazy imports."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ._plugins import (
    attribute_of_file,
    load_entry_points,
    load_imports,
    origin_of,
    split_file,
)
from .errors import HloEnvError

Made = TypeVar("Made")


def load_attribute(path: str) -> Any:
    """Imports the object that a path such as "hloenv.search.policy:Searched" names.

    For objects that a lower package offers and a higher one defines.
    """
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Info:
    """Description of one entry of a registry.

    Attributes:
        name: as it is listed; a family's ends in ":" and its parameter.
        summary: one sentence.
        is_random: whether equal calls may differ: it depends on a seed, or measures.
        origin: its definition: "hloenv", a file, or a module of another package.
    """

    name: str
    summary: str
    is_random: bool
    origin: str = "hloenv"


@dataclass(frozen=True)
class _Entry(Generic[Made]):
    info: Info
    make: Made | str


class Registry(Generic[Made]):
    """Finds makers by name.

    A *family* is found by the part before the first ":" of a specification, such as
    `share:0.5`; its maker gets the rest.

    Attributes:
        kind: word for an entry in messages: "policy".
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        error: Callable[[str], HloEnvError],
        *,
        group: str = "",
        is_random: bool = False,
    ) -> None:
        """Makes an empty registry.

        Args:
            kind: word for an entry in messages.
            plural: its plural.
            error: makes the error for an unknown name from its message.
            group: entry points with which installed packages register entries.
            is_random: whether what a user's file has depends on the seed.
        """
        self._is_random = is_random
        self._group = group
        self.kind = kind
        self._plural = plural
        self._error = error
        self._entries: dict[str, _Entry[Made]] = {}
        self._aliases: dict[str, str] = {}

    def add(
        self,
        name: str,
        summary: str,
        make: Made | str,
        *,
        is_random: bool = False,
        alias: str = "",
    ) -> None:
        """Registers `make` under a name.

        Args:
            name: lower case, words joined by "-"; a family's is followed by ":" and
                its parameter in capitals: "share:PROBABILITY".
            summary: one sentence.
            make: the result of `find`; or its path, "package.module:name", which is
                imported on first use.
            is_random: whether it depends on the seed.
            alias: another name, which is not listed.

        Raises:
            ValueError: the name is taken.
        """
        key = _key(name)
        for each in filter(None, (key, alias)):
            if each in self._entries or each in self._aliases:
                raise ValueError(
                    f"the {self.kind} {each!r} exists already; choose another name"
                )
        info = Info(name, summary, is_random, origin_of(make))
        self._entries[key] = _Entry(info, make)
        if alias:
            self._aliases[alias] = key

    def remove(self, name: str) -> None:
        """Removes an entry and its aliases."""
        del self._entries[_key(name)]
        self._aliases = {a: key for a, key in self._aliases.items() if key != name}

    def names(self, *, families: bool = False) -> tuple[str, ...]:
        """Names of all entries that need no specification, or of the families."""
        self._load()
        names = (entry.info.name for entry in self._entries.values())
        return tuple(sorted(name for name in names if (":" in name) == families))

    def describe(self, spec: str) -> Info:
        """Describes an entry, or what a file has under a name: "my.py:name".

        Raises:
            The registry's error: no entry has this name.
            ArgumentError, PluginError: the file has no such name, or it fails.
        """
        if own := split_file(spec):
            file, name = own
            text = (attribute_of_file(file, name).__doc__ or "").strip()
            summary = text.partition("\n")[0] or f"{name} of {file}"
            return Info(spec, summary, self._is_random, file)
        return self._entry(spec)[0].info

    def summaries(self) -> dict[str, str]:
        """Names and summaries of what `names` lists."""
        return {name: self.describe(name).summary for name in self.names()}

    def find(self, spec: str) -> tuple[Made, str | None]:
        """A maker, and the rest of the specification: None if it is not a family.

        Raises:
            The registry's error: no entry has this name.
        """
        entry, rest = self._entry(spec)
        make = entry.make
        return (load_attribute(make) if isinstance(make, str) else make), rest

    def _load(self) -> None:
        """Registers what users offer, before all are listed or one is missing."""
        load_imports()
        if self._group:
            load_entry_points(self._group)

    def _entry(self, spec: str) -> tuple[_Entry[Made], str | None]:
        name = str(spec)
        # To read the entry points of all packages takes tens of milliseconds.
        found = self._known(name)
        if found is None:
            self._load()
            found = self._known(name)
        if found is not None:
            return found
        known = (*self.names(), *self.names(families=True))
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise self._error(
            f"no {self.kind} is named {spec!r}; the {self._plural} are "
            f"{', '.join(known)}.{hint}"
        )

    def _known(self, name: str) -> tuple[_Entry[Made], str | None] | None:
        name = self._aliases.get(name, name)
        entry = self._entries.get(name)
        if entry is not None and not name.endswith(":"):
            return entry, None
        head, colon, rest = name.partition(":")
        entry = self._entries.get(head + ":")
        return (entry, rest) if entry is not None and colon else None


def _key(name: str) -> str:
    head, colon, _ = name.partition(":")
    return head + colon
