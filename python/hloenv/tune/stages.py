# SPDX-License-Identifier: Apache-2.0
"""The stages of the compiler, and how they depend on each other, as data.

For each pair of stages:

* "separable": the better choice at one does not depend on the other; both are decided
  alone, and the results are put together.
* "sequential": the earlier one changes what the later one has to decide, and the later
  one has no influence back.
* "joint": the better choice at either depends on the other.

From this the driver takes the order, and which stages to look at again after a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import ArgumentError

Relation = Literal["separable", "sequential", "joint"]


@dataclass(frozen=True)
class Stage:
    """A stage of the compiler.

    Attributes:
        name: in reports and on the command line.
        summary: what is decided there.
    """

    name: str
    summary: str


# In the order of the compiler; the engine first, since it says which decisions there
# are.
STAGES = (
    Stage("engine", "whose passes and whose code generator: jaxlib's or the wheel's"),
    Stage("forms", "other forms of convolutions, small dots and short reductions"),
    Stage("simplify", "algebraic simplification, reassociation, merges of dots"),
    Stage("dots", "which library or code generator runs dots and convolutions"),
    Stage("layout", "layouts of dots, convolutions and reductions"),
    Stage("fusion", "which operations are one kernel, and which loops"),
    Stage("parallel", "what is partitioned among threads"),
    Stage("schedule", "order of the operations, and of their execution"),
    Stage("tiles", "sizes of tiles"),
    Stage("codegen", "vectors, unrolling, emitters and passes of LLVM"),
)

# Pairs that are not separable, the earlier stage first, with the reason.
_RELATIONS: dict[tuple[str, str], tuple[Relation, str]] = {
    ("engine", "dots"): ("joint", "each has other libraries"),
    ("engine", "layout"): ("joint", "only the wheel's layouts are decided"),
    ("engine", "fusion"): ("joint", "only the wheel's fusions are decided one by one"),
    ("engine", "parallel"): ("joint", "each has its own partitions"),
    ("engine", "schedule"): ("joint", "each runs its thunks in another way"),
    ("engine", "tiles"): ("joint", "only jaxlib takes them"),
    ("engine", "codegen"): ("joint", "only jaxlib takes them"),
    ("forms", "simplify"): (
        "joint",
        "the simplifier rewrites what the forms consist of",
    ),
    ("forms", "dots"): ("joint", "forms turn convolutions into dots"),
    ("forms", "layout"): ("sequential", "other operations have layouts"),
    ("forms", "fusion"): ("sequential", "other operations are fused"),
    ("forms", "parallel"): ("sequential", "other operations are partitioned"),
    ("simplify", "dots"): ("sequential", "merged dots are other dots"),
    ("simplify", "layout"): ("sequential", "fewer operations have layouts"),
    ("simplify", "fusion"): ("joint", "the result determines which fusions there are"),
    ("dots", "layout"): ("joint", "a library wants its own layouts"),
    ("dots", "fusion"): ("joint", "a library takes the operations around a dot"),
    ("dots", "parallel"): ("joint", "libraries have threads of their own"),
    ("dots", "tiles"): ("sequential", "only dots without a library have tiles"),
    ("layout", "fusion"): ("joint", "a fusion needs its operands in one order"),
    ("fusion", "parallel"): ("sequential", "whole kernels are partitioned"),
    ("fusion", "schedule"): ("sequential", "whole kernels are scheduled"),
    ("fusion", "tiles"): ("sequential", "a kernel is tiled as a whole"),
    ("fusion", "codegen"): ("joint", "an emitter makes some fusions fast, others slow"),
    ("parallel", "schedule"): ("joint", "both share the same threads"),
    ("tiles", "codegen"): ("joint", "a tile fills a number of vectors"),
}


def stage_names() -> tuple[str, ...]:
    """Names of all stages, in the order in which they are decided."""
    return tuple(each.name for each in STAGES)


def check_stages(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the order of the stages.

    Raises:
        ArgumentError: there is none, or one is not a stage.
    """
    given = list(names)
    unknown = [each for each in given if each not in stage_names()]
    if unknown or not given:
        problem = f"{unknown[0]!r} is not a stage" if unknown else "there are no stages"
        raise ArgumentError(
            f"{problem}; use one or several of {', '.join(stage_names())}"
        )
    return tuple(each for each in stage_names() if each in given)


def relation(one: str, other: str) -> Relation:
    """How two stages depend on each other, in either order."""
    return _found(one, other)[0]


def reason(one: str, other: str) -> str:
    """Why two stages depend on each other; "" if they do not."""
    return _found(one, other)[1]


def _found(one: str, other: str) -> tuple[Relation, str]:
    pair = tuple(sorted((one, other), key=stage_names().index))
    return _RELATIONS.get((pair[0], pair[1]), ("separable", ""))


def reopened_by(changed: str, stages: Sequence[str]) -> tuple[str, ...]:
    """The stages whose choices a change at a stage may have made worse.

    These are the later ones that depend on it, and the earlier ones that are joint with
    it. All others keep what was measured.
    """
    names = stage_names()
    return tuple(
        each
        for each in stages
        if each != changed
        and (
            relation(each, changed) == "joint"
            or (
                relation(each, changed) == "sequential"
                and names.index(each) > names.index(changed)
            )
        )
    )
