# SPDX-License-Identifier: Apache-2.0
"""Candidate passes that are written in Python.

Such a pass looks at a module and proposes replacements, each as an HLO computation. The
C++ core captures them like the proposals of its own candidate passes, so that they
compete with the rewrites of other passes, and are verified and applied like these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .._native import core
from .._plugins import module_of_caller
from .._registry import Registry
from ..errors import PassError, PassOptionError, UnknownPassError

if TYPE_CHECKING:
    from .module import HloModule
    from .pass_info import OptionValue, PassInfo


@dataclass(frozen=True)
class GivenProposal:
    """One replacement, in names of instructions of the module.

    Attributes:
        rule: what proposes it; a choice shows it.
        originals: the values that it replaces together, at least one.
        reads: the values that it reads, at least one.
        computation: name of the computation in the library. Its parameters are `reads`
            in order; its root replaces the original, or the elements of its root, a
            tuple, replace several.
        needs_moderate: whether it is left out where a float array that it reads may
            hold infinities or huge masks from constants of the module, as
            `hlo.numerics` promises for "rounding".
    """

    rule: str
    originals: tuple[str, ...]
    reads: tuple[str, ...]
    computation: str
    needs_moderate: bool = False

    def to_core(self) -> tuple[str, list[str], list[str], str, bool]:
        """The C++ core's form."""
        return (
            self.rule,
            list(self.originals),
            list(self.reads),
            self.computation,
            self.needs_moderate,
        )


@dataclass(frozen=True)
class Proposals:
    """What a Python pass proposes for one module.

    Attributes:
        library: has the computations; nothing else of it is used.
        proposals: in a deterministic order.
    """

    library: HloModule
    proposals: tuple[GivenProposal, ...]


class PythonPass(Protocol):
    """A candidate pass written in Python."""

    @property
    def info(self) -> PassInfo:
        """Its name, summary, options and numerical class."""
        ...

    def propose(
        self, module: HloModule, options: Mapping[str, OptionValue]
    ) -> Proposals:
        """All replacements that it knows for a module.

        Args:
            module: not modified.
            options: every option of `info`, by name.
        """
        ...


BUILT_IN = frozenset({"substitutions"})
REGISTRY: Registry[PythonPass] = Registry(
    "Python pass", "Python passes", UnknownPassError, group="hloenv.passes"
)
# A path is imported on first use.
REGISTRY.add(
    "substitutions",
    "TASO's families of substitutions.",
    "hloenv.rules.sets:SUBSTITUTIONS",
)


def add_pass(made: PythonPass) -> None:
    """Registers a pass under the name in its `info`; replaces one of that name.

    Raises:
        PassOptionError: XLA or hloenv has a pass of this name.
    """
    name = made.info.name
    if name in core.list_passes() or name in BUILT_IN:
        raise PassOptionError(
            f"hloenv has a pass {name!r} already; give yours another name"
        )
    remove_pass(name)
    made.__module__ = module_of_caller()  # from which the registry has the origin
    REGISTRY.add(name, made.info.summary, made)


def check_same_kind(made: PythonPass) -> None:
    """Rejects a pass that would replace one of another kind, as a function's a rule.

    Raises:
        PassOptionError: there is one of its name.
    """
    old = find_pass(made.info.name)
    if old is not None and type(old) is not type(made):
        raise PassOptionError(
            f"there is a pass {made.info.name!r} of another kind "
            f"({type(old).__name__}); give yours another name, or remove that one: "
            f"hloenv.hlo.python_passes.remove_pass({made.info.name!r})"
        )


def remove_pass(name: str) -> None:
    """Removes a pass that was added; does nothing if there is none."""
    if name in REGISTRY.names() and name not in BUILT_IN:
        REGISTRY.remove(name)


def python_pass_names() -> tuple[str, ...]:
    """Names of the registered Python passes, sorted."""
    return REGISTRY.names()


def origin_of_pass(name: str) -> str:
    """Where a pass is from: "hloenv", a Python file, or a module."""
    return REGISTRY.describe(name).origin if name in REGISTRY.names() else "hloenv"


def find_pass(name: str) -> PythonPass | None:
    """The Python pass of a name; None if there is none."""
    return REGISTRY.find(name)[0] if name in REGISTRY.names() else None


def check_options(made: PythonPass, given: Mapping[str, OptionValue]) -> None:
    """Checks names and types of options.

    Raises:
        PassOptionError: no such option, or a value of another type.
    """
    name = made.info.name
    known = {option.name: option for option in made.info.options}
    types = {"bool": bool, "int": int, "float": float, "string": str}
    for key, value in given.items():
        if key not in known:
            raise PassOptionError(
                f"pass {name!r} has no option {key!r}; it has "
                f"{', '.join(known) or 'none'}"
            )
        if type(value) is not types[known[key].type]:
            raise PassOptionError(
                f"option {key!r} of pass {name!r} is {value!r} "
                f"({type(value).__name__}); it must be a {known[key].type}"
            )


def to_given(
    made: PythonPass,
    module: HloModule,
    options: Mapping[str, OptionValue],
    pipeline: str,
) -> core.PipelineSpec:
    """The C++ core's form of a pass's proposals for a module, as a named pipeline."""
    every = {option.name: option.default for option in made.info.options}
    found = made.propose(module, {**every, **options})
    if not isinstance(found, Proposals):
        raise PassError(
            f"pass {made.info.name!r} proposes {type(found).__name__}; `propose` must "
            "return hloenv.hlo.python_passes.Proposals"
        )
    spec: core.PipelineSpec = core.given_candidates(
        made.info.name,
        found.library._core,
        [each.to_core() for each in found.proposals],
        pipeline,
    )
    return spec
