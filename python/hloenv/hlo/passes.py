# SPDX-License-Identifier: Apache-2.0
"""XLA's passes by name, with typed options, alone or in pipelines."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._native import core, is_text
from ..errors import PassError, PassOptionError, UnknownPassError
from .decided import changed_since
from .module import HloModule, as_module
from .numerics import numerics_of
from .pass_info import OptionValue, PassInfo, PassOption
from .python_passes import check_options, find_pass, python_pass_names, to_given
from .renamed import current_name

StopReason = Literal["ran-once", "converged", "iteration-limit"]


def list_passes() -> tuple[str, ...]:
    """Names of all passes, those in Python included, sorted."""
    return tuple(sorted((*core.list_passes(), *python_pass_names())))


def excluded_passes() -> dict[str, str]:
    """XLA's passes that cannot be captured, sorted, each with the reason."""
    return dict(core.excluded_passes())


@functools.cache
def _pass_table() -> dict[str, dict[str, Any]]:
    # Not by importlib.resources, which takes locks of imports: a process that is forked
    # off meanwhile would wait for them forever.
    path = Path(__file__).with_name("pass_table.json")
    table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return table


def describe_pass(name: str) -> PassInfo:
    """Summary and options of one pass.

    Raises:
        UnknownPassError: no pass has this name; the message suggests one.
        PassOptionError: the name is not a str.
    """
    name = _checked_name(name, "a pass")
    own = find_pass(name)
    return _describe_pass(name) if own is None else own.info


@functools.cache
def _describe_pass(name: str) -> PassInfo:
    try:
        info = core.describe_pass(name)
    except UnknownPassError as error:
        if set(name) & set(":+*"):
            raise UnknownPassError(
                f"no pass is named {name!r}, which is written as for --pass; in "
                f"Python, write {_in_python(name)}"
            ) from None
        # The core does not know how many passes there are in Python.
        text = str(error).rpartition(" lists all ")[0] or str(error)
        raise UnknownPassError(f"{text} lists all {len(list_passes())}") from None
    return PassInfo(
        name=info["name"],
        summary=info["summary"],
        options=tuple(PassOption(**option) for option in info["options"]),
        candidate=info["candidate"],
        class_name=info["class_name"],
        kinds=tuple(sorted(_pass_table().get(name, {}).get("kinds", ()))),
        indivisible_reasons=tuple(_pass_table().get(name, {}).get("reasons", ())),
        numerics=numerics_of(name),
    )


def _in_python(text: str) -> str:
    """How to write in Python what is written as for --pass."""
    steps = [_step_in_python(each) for each in text.removesuffix("*").split("+")]
    is_fixed_point = text.endswith("*")
    if len(steps) == 1 and not is_fixed_point:
        return steps[0]
    last = ", fixed_point=True" * is_fixed_point
    return f"hloenv.Pipeline({text!r}, [{', '.join(steps)}]{last})"


def _step_in_python(text: str) -> str:
    name, _, options = text.partition(":")
    if not options:
        return repr(name)
    for value in ("true", "false"):
        options = options.replace(f"={value}", f"={value.capitalize()}")
    return f"hloenv.Pass({name!r}, {options.replace(',', ', ')})"


@dataclass(frozen=True, init=False, repr=False)
class Pass:
    """One pass with options.

    Attributes:
        name: as in `list_passes`.
        options: the given ones, sorted by name; the others have their defaults.

    Raises:
        UnknownPassError: no pass has this name.
        PassOptionError: the pass has no such option, or the value has another type
            (a bool is not an int; a float option takes an int) or is not allowed.
    """

    name: str
    options: tuple[tuple[str, OptionValue], ...]

    def __init__(self, name: str, /, **options: OptionValue) -> None:
        name = _checked_name(name, "a pass")
        types = {option.name: option.type for option in describe_pass(name).options}
        given: dict[str, Any] = {}
        for key, value in options.items():
            plain = value.item() if isinstance(value, np.generic) else value
            # One stored form for 2 and 2.0, so that equal passes print equally.
            if types.get(key) == "float" and type(plain) is int:
                plain = float(plain)
            if isinstance(plain, str) and not is_text(plain):
                raise PassOptionError(
                    f"option {key!r} of pass {name!r} must be encodable as UTF-8, got "
                    f"{plain!r}"
                )
            given[key] = plain
        if (own := find_pass(name)) is not None:
            check_options(own, given)
        else:
            core.check_pass(name, given)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", tuple(sorted(given.items())))

    def __repr__(self) -> str:
        arguments = [repr(self.name), *(f"{k}={v!r}" for k, v in self.options)]
        return f"Pass({', '.join(arguments)})"

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes; `from_json` reads it back."""
        return {"pass": self.name, "options": dict(self.options)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Pass:
        """Reads what `to_json` wrote.

        Raises:
            UnknownPassError, PassOptionError: as the constructor; PassOptionError
                also where this is not what `to_json` writes.
        """
        if (
            not isinstance(value, Mapping)
            or set(value) != {"pass", "options"}
            or not isinstance(value["options"], Mapping)
        ):
            raise PassOptionError(
                "a pass in JSON must be an object with 'pass', a name, and 'options', "
                f"an object, got {value!r}"
            )
        return cls(value["pass"], **value["options"])


@dataclass(frozen=True, init=False, repr=False)
class Pipeline:
    """Passes and pipelines in order, once or to a fixed point.

    Attributes:
        name: its name in alternatives, traces and errors.
        passes: names become `Pass`es without options.
        fixed_point: repeat until a round makes no change.
        max_iterations: limit on the rounds of a fixed point.

    Raises:
        UnknownPassError: no pass has one of the names.
        PassOptionError: no passes, or arguments of other types.
    """

    name: str
    passes: tuple[Pass | Pipeline, ...]
    fixed_point: bool
    max_iterations: int

    def __init__(
        self,
        name: str,
        passes: Iterable[str | Pass | Pipeline],
        *,
        fixed_point: bool = False,
        max_iterations: int = 25,
    ) -> None:
        name = _checked_name(name, "a pipeline")
        if isinstance(passes, str | Pass | Pipeline) or not isinstance(
            passes, Iterable
        ):
            raise PassOptionError(
                f"pipeline {name!r} needs a list of passes, got {passes!r}; for one "
                f"pass use [{passes!r}]"
            )
        if not isinstance(fixed_point, bool):
            raise PassOptionError(
                f"fixed_point of pipeline {name!r} must be True or False, got "
                f"{fixed_point!r}"
            )
        if isinstance(max_iterations, bool) or not isinstance(max_iterations, int):
            raise PassOptionError(
                f"max_iterations of pipeline {name!r} must be an int, got "
                f"{max_iterations!r} ({type(max_iterations).__name__})"
            )
        if not 1 <= max_iterations < 2**31:
            raise PassOptionError(
                f"max_iterations of pipeline {name!r} must be an integer >= 1 that "
                f"fits 32 bits, got {max_iterations}"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "passes", tuple(_as_step(item) for item in passes))
        object.__setattr__(self, "fixed_point", fixed_point)
        object.__setattr__(self, "max_iterations", max_iterations)
        if not self.passes:
            raise PassOptionError(
                f"pipeline {name!r} is empty; it needs at least one pass"
            )

    def __repr__(self) -> str:
        arguments = [
            repr(self.name),
            repr([_short(item) for item in self.passes]),
        ]
        if self.fixed_point:
            arguments.append("fixed_point=True")
        if self.max_iterations != 25:
            arguments.append(f"max_iterations={self.max_iterations}")
        return f"Pipeline({', '.join(arguments)})"

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes; `from_json` reads it back."""
        return {
            "pipeline": self.name,
            "passes": [item.to_json() for item in self.passes],
            "fixed_point": self.fixed_point,
            "max_iterations": self.max_iterations,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Pipeline:
        """Reads what `to_json` wrote.

        Raises:
            UnknownPassError, PassOptionError: as the constructor; PassOptionError
                also where this is not what `to_json` writes.
        """
        keys = {"pipeline", "passes", "fixed_point", "max_iterations"}
        if (
            not isinstance(value, Mapping)
            or set(value) != keys
            or not isinstance(value["passes"], list)
        ):
            raise PassOptionError(
                f"a pipeline in JSON must be an object with {sorted(keys)}, of which "
                f"'passes' is a list, got {value!r}"
            )
        return cls(
            value["pipeline"],
            [from_json(item) for item in value["passes"]],
            fixed_point=value["fixed_point"],
            max_iterations=value["max_iterations"],
        )


def from_json(value: Mapping[str, Any]) -> Pass | Pipeline:
    """Reads what `Pass.to_json` or `Pipeline.to_json` wrote.

    Raises:
        UnknownPassError, PassOptionError: as the two constructors.
    """
    if isinstance(value, Mapping) and "pipeline" in value:
        return Pipeline.from_json(value)
    return Pass.from_json(value)


def as_pipeline(item: str | Pass | Pipeline) -> Pipeline:
    """A pass, by name or with options, as a pipeline of one with its name.

    Raises:
        UnknownPassError: no pass has this name.
        PassOptionError: the argument is neither a name, a pass nor a pipeline.
    """
    step = _as_step(item)
    return step if isinstance(step, Pipeline) else Pipeline(step.name, [step])


def pass_names(items: Iterable[Pass | Pipeline]) -> frozenset[str]:
    """Names of all passes in pipelines, including nested ones."""
    names: set[str] = set()
    for each in items:
        names |= pass_names(each.passes) if isinstance(each, Pipeline) else {each.name}
    return frozenset(names)


def is_plain(pipeline: Pipeline) -> bool:
    """Whether it runs one pass, of its name, once and without options."""
    (first, *others) = pipeline.passes
    return (
        not others
        and isinstance(first, Pass)
        and first.name == pipeline.name
        and not first.options
        and not pipeline.fixed_point
    )


@functools.cache
def is_candidate(pipeline: Pipeline) -> bool:
    """Whether it is one candidate pass, which only proposes rewrites."""
    (first, *others) = pipeline.passes
    return (
        not others and isinstance(first, Pass) and describe_pass(first.name).candidate
    )


def to_core(pipeline: Pipeline, module: HloModule | None = None) -> core.PipelineSpec:
    """The C++ core's form of a pipeline.

    Args:
        pipeline: passes of XLA and hloenv, or one candidate pass in Python.
        module: to capture; only passes in Python need it.

    Raises:
        PassError: a pass in Python is to run, or is one of several.
    """
    for name in pass_names([pipeline]):
        if (own := find_pass(name)) is None:
            continue
        (first, *others) = pipeline.passes
        if module is None or others or not isinstance(first, Pass):
            raise PassError(
                f"pass {name!r} only proposes rewrites, so it cannot run or be part "
                "of a pipeline; capture it with get_alternatives, which merges the "
                "rewrites of several passes"
            )
        return to_given(own, module, dict(first.options), pipeline.name)
    steps = [
        to_core(item) if isinstance(item, Pipeline) else (item.name, dict(item.options))
        for item in pipeline.passes
    ]
    return core.PipelineSpec(
        pipeline.name,
        steps,
        fixed_point=pipeline.fixed_point,
        max_iterations=pipeline.max_iterations,
    )


@dataclass(frozen=True)
class StepRun:
    """One run of one step of a pipeline.

    Attributes:
        path: names from the outermost nested pipeline to the step, "simplify/cse".
        iteration: round of the pipeline that holds the step, from 0.
        changed: whether the step reported a change.
        duration_ns: time of the step.
    """

    path: str
    iteration: int
    changed: bool
    duration_ns: int


@dataclass(frozen=True)
class PassRun:
    """Result of running passes on a module.

    Attributes:
        module: the new module.
        changed: whether any pass reported a change.
        iterations: rounds of the outermost pipeline.
        stop_reason: "ran-once" (no fixed point), "converged" (the last round made no
            change) or "iteration-limit".
        duration_ns: time of all passes, excluding the copy of the module.
        steps: every run of every step, in order.
    """

    module: HloModule
    changed: bool
    iterations: int
    stop_reason: StopReason
    duration_ns: int
    steps: tuple[StepRun, ...]


def run_passes(
    module: HloModule | str | os.PathLike[str], *passes: str | Pass | Pipeline
) -> PassRun:
    """Runs passes on a copy of `module`, as XLA would.

    Raises:
        UnknownPassError, PassOptionError: a pass or option does not exist.
        PassError: a pass failed, only proposes alternatives, or makes a valid module
            invalid (a bug of XLA's).
    """
    if len(passes) == 1:
        pipeline = as_pipeline(passes[0])
    else:
        pipeline = Pipeline("passes", passes)
    before = as_module(module)
    after, changed, result = core.run_passes(before._core, to_core(pipeline))
    return PassRun(
        module=HloModule._wrap(
            after,
            position=before.position,
            decided=changed_since(before._decided) if changed else before._decided,
        ),
        changed=changed,
        iterations=result["iterations"],
        stop_reason=result["stop_reason"],
        duration_ns=result["duration_ns"],
        steps=tuple(StepRun(*step) for step in result["steps"]),
    )


def _as_step(item: str | Pass | Pipeline) -> Pass | Pipeline:
    if isinstance(item, Pass | Pipeline):
        return item
    return Pass(_checked_name(item, "a pass"))


def _short(item: Pass | Pipeline) -> str | Pass | Pipeline:
    return item.name if isinstance(item, Pass) and not item.options else item


def _checked_name(name: object, what: str) -> str:
    if isinstance(name, str) and name and is_text(name):
        return current_name(name)
    raise PassOptionError(
        f"the name of {what} must be a non-empty str, got {name!r} "
        f"({type(name).__name__}); give passes as names, Pass or Pipeline objects"
    )
