# SPDX-License-Identifier: Apache-2.0
"""Descriptions of passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .numerics import Numerics

OptionValue = bool | int | float | str
OptionType = Literal["bool", "int", "float", "string"]


@dataclass(frozen=True)
class PassOption:
    """One option of a pass.

    Attributes:
        name: keyword of `Pass`.
        type: "bool", "int", "float" (takes ints too) or "string".
        default: value when not given.
        doc: one sentence.
        allowed: values of a string option; empty if all are allowed.
        minimum: smallest value of an int option, or None.
    """

    name: str
    type: OptionType
    default: OptionValue
    doc: str
    allowed: tuple[str, ...] = ()
    minimum: int | None = None


@dataclass(frozen=True)
class PassInfo:
    """Description of a pass.

    Attributes:
        name: XLA's own name.
        summary: what it does, in a sentence or two.
        options: sorted by name.
        candidate: whether it only proposes rewrites, each a choice, so that it gives
            alternatives but cannot run.
        class_name: XLA's C++ class.
        kinds: kinds of its alternatives (`Alternative.kind`) on real modules, sorted;
            empty if it changed none of them.
        indivisible_reasons: why it was one indivisible alternative, if it was.
        numerics: its guarantee for floats with its default options: "exact",
            "rounding" or "unsafe"; `hloenv.hlo.numerics` defines them.
    """

    name: str
    summary: str
    options: tuple[PassOption, ...]
    candidate: bool
    class_name: str
    kinds: tuple[str, ...] = ()
    indivisible_reasons: tuple[str, ...] = ()
    numerics: Numerics = "exact"
