# SPDX-License-Identifier: Apache-2.0
"""A position in XLA's own pipeline, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import PlaceError
from .renamed import current_entry

# The names of XLA's own pipelines, as `list_stages` shows them.
_BEFORE_LAYOUT_ASSIGNMENT = frozenset({"sharding-removal", "SubbytePacker pipeline"})
_THROUGH_LAYOUT_ASSIGNMENT = "HLO passes through layout assignment"


_LAST_OF_LAYOUT_ASSIGNMENT = frozenset({"shape-canonicalizer", "literal-canonicalizer"})


@dataclass(frozen=True)
class Place:
    """In front of which pass a module stands; the earlier passes have run.

    Attributes:
        path: the pass or pipeline that comes next, with the pipelines around it,
            outermost first, joined by "/".
        occurrence: which arrival at this path it is, from 1; pipelines that run to a
            fixed point come by several times.
        changed: one "0" or "1" for each earlier pass, in order: whether it reported a
            change. With these answers XLA takes the same way again.
    """

    path: str
    occurrence: int
    changed: str

    @property
    def name(self) -> str:
        """The name of the pass or pipeline that comes next."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def has_layouts(self) -> bool:
        """Whether XLA has assigned layouts by then, so that fusions can be decided."""
        pipeline = self.path.split("/", 1)[0]
        if pipeline == _THROUGH_LAYOUT_ASSIGNMENT:
            return self.name in _LAST_OF_LAYOUT_ASSIGNMENT
        return pipeline not in _BEFORE_LAYOUT_ASSIGNMENT

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Place:
        """Reads what `to_json` wrote.

        Raises:
            PlaceError: this is not a place.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            place = cls(**data)
        except (TypeError, ValueError) as error:
            raise PlaceError(f"this is not a place in JSON: {error}") from None
        is_place = (
            isinstance(place.path, str)
            and type(place.occurrence) is int
            and place.occurrence >= 1
            and isinstance(place.changed, str)
            and set(place.changed) <= {"0", "1"}
        )
        if not is_place:
            raise PlaceError(
                "a place in JSON has a path (str), an occurrence (from 1) and changed "
                f"('0' and '1' only), not {text[:80]!r}"
            )
        return place

    def __str__(self) -> str:
        return f"before {self.path} ({self.occurrence})"


def to_note(place: Place | None, decided: Collection[str]) -> str:
    """What is kept of a module beside its instructions; "" where there is nothing."""
    if place is None and not decided:
        return ""
    where = None if place is None else asdict(place)
    return json.dumps({"place": where, "decided": sorted(decided)})


def from_note(note: str) -> tuple[Place | None, frozenset[str]]:
    """Reads what `to_note` wrote.

    Raises:
        PlaceError: this is no such note.
    """
    if not note:
        return None, frozenset()
    try:
        data = json.loads(note)
        where, decided = data["place"], data["decided"]
        if not isinstance(decided, list) or not all(
            isinstance(each, str) for each in decided
        ):
            raise TypeError("what was decided is a list of names")
        place = None if where is None else Place.from_json(json.dumps(where))
    except (KeyError, TypeError, ValueError, PlaceError) as error:
        raise PlaceError(
            f"the module's hloenv_place is not one that hloenv wrote: {error}; "
            "without that attribute, XLA's passes start at the beginning"
        ) from None
    return place, frozenset(map(current_entry, decided))


def as_tuple(place: Place | None) -> tuple[str, int, str] | None:
    """A place as the C++ core takes it."""
    return None if place is None else (place.path, place.occurrence, place.changed)
