# SPDX-License-Identifier: Apache-2.0
"""A position in XLA's own pipeline, and its serialized form."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import PositionError
from .renamed import current_entry

# The names of XLA's own pipelines, as `list_stages` shows them.
_BEFORE_LAYOUT_ASSIGNMENT = frozenset({"sharding-removal", "SubbytePacker pipeline"})
_THROUGH_LAYOUT_ASSIGNMENT = "HLO passes through layout assignment"


_LAST_OF_LAYOUT_ASSIGNMENT = frozenset({"shape-canonicalizer", "literal-canonicalizer"})


@dataclass(frozen=True)
class PipelinePosition:
    """A position in XLA's pipeline: the passes before it have run on the module.

    Attributes:
        path: the pass or pipeline that comes next, with the pipelines around it,
            outermost first, joined by "/".
        occurrence: which invocation of this path it is, from 1; pipelines that run to a
            fixed point reach a path several times.
        changed: one "0" or "1" for each earlier pass, in order: whether it reported a
            change. A replay returns these answers, so that XLA runs the same passes.
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
        """Whether it follows layout assignment, so that fusions can be decided."""
        pipeline = self.path.split("/", 1)[0]
        if pipeline == _THROUGH_LAYOUT_ASSIGNMENT:
            return self.name in _LAST_OF_LAYOUT_ASSIGNMENT
        return pipeline not in _BEFORE_LAYOUT_ASSIGNMENT

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PipelinePosition:
        """Reads the text of `to_json`.

        Raises:
            PositionError: the text is not a position.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            position = cls(**data)
        except (TypeError, ValueError) as error:
            raise PositionError(f"this is not a position in JSON: {error}") from None
        is_position = (
            isinstance(position.path, str)
            and type(position.occurrence) is int
            and position.occurrence >= 1
            and isinstance(position.changed, str)
            and set(position.changed) <= {"0", "1"}
        )
        if not is_position:
            raise PositionError(
                "a position in JSON has a path (str), an occurrence (int >= 1) and "
                f"changed ('0' and '1' only), got {text[:80]!r}"
            )
        return position

    def __str__(self) -> str:
        return f"before {self.path} ({self.occurrence})"


def to_note(position: PipelinePosition | None, decided: Collection[str]) -> str:
    """The position and decisions of a module as text; "" if there are none."""
    if position is None and not decided:
        return ""
    where = None if position is None else asdict(position)
    return json.dumps({"place": where, "decided": sorted(decided)})


def from_note(note: str) -> tuple[PipelinePosition | None, frozenset[str]]:
    """Reads the text of `to_note`.

    Raises:
        PositionError: the text is not such a note.
    """
    if not note:
        return None, frozenset()
    try:
        data = json.loads(note)
        where, decided = data["place"], data["decided"]
        if not isinstance(decided, list) or not all(
            isinstance(each, str) for each in decided
        ):
            raise TypeError("'decided' must be a list of names")
        position = (
            None if where is None else PipelinePosition.from_json(json.dumps(where))
        )
    except (KeyError, TypeError, ValueError, PositionError) as error:
        raise PositionError(
            f"the module's attribute hloenv_place was not written by hloenv: {error}; "
            "remove the attribute to start at the beginning of XLA's pipeline"
        ) from None
    return position, frozenset(map(current_entry, decided))


def as_tuple(position: PipelinePosition | None) -> tuple[str, int, str] | None:
    """A position as the C++ core takes it."""
    return (
        None
        if position is None
        else (position.path, position.occurrence, position.changed)
    )
