# SPDX-License-Identifier: Apache-2.0
"""Passes as text: NAME, NAME:OPTION=VALUE,..., NAME+NAME, NAME+NAME*."""

from __future__ import annotations

from ..errors import ArgumentError, PassOptionError
from .pass_info import OptionValue
from .passes import Pass, Pipeline, describe_pass

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def parse_pass(text: str) -> Pass | Pipeline:
    """The pass or pipeline of a text.

    Args:
        text: a name, with options as "algsimp:is_layout_sensitive=true"; several of
            them joined by "+" are a pipeline, which runs to a fixed point with "*" at
            the end.

    Raises:
        UnknownPassError, PassOptionError: no such pass or option, or another text.
    """
    is_fixed_point = text.endswith("*")
    steps = [_parse_step(step) for step in text.removesuffix("*").split("+")]
    if len(steps) == 1 and not is_fixed_point:
        return steps[0]
    name = "+".join(step.name for step in steps) + "*" * is_fixed_point
    return Pipeline(name, steps, fixed_point=is_fixed_point)


def _parse_step(text: str) -> Pass:
    name, _, rest = text.strip().partition(":")
    types = {option.name: option.type for option in describe_pass(name).options}
    options: dict[str, OptionValue] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise PassOptionError(
                f"option {part!r} of pass {name!r} has no value; write "
                f"{name}:{part}=VALUE"
            )
        # Pass reports unknown options and lists the known ones.
        options[key.strip()] = _parse_value(
            value.strip(), types.get(key.strip(), "string"), f"{name}:{key}"
        )
    return Pass(name, **options)


def _parse_value(text: str, type_: str, what: str) -> OptionValue:
    try:
        if type_ == "bool":
            return _BOOLS[text.lower()]
        if type_ == "int":
            return int(text)
        if type_ == "float":
            return float(text)
    except (KeyError, ValueError):
        raise PassOptionError(
            f"option {what} must be of type {type_}, got {text!r}"
        ) from None
    return text


def spelled(item: Pass | Pipeline) -> str:
    """A pass with its options, as `parse_pass` reads it; a pipeline's name."""
    if isinstance(item, Pipeline):
        return item.name
    options = ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in item.options
    )
    return f"{item.name}:{options}" if options else item.name


def pass_text(item: Pass | Pipeline) -> str:
    """A pass or a pipeline as `parse_pass` reads it.

    Raises:
        ArgumentError: a pipeline that the text cannot say.
    """
    if isinstance(item, Pass):
        return spelled(item)
    is_flat = all(isinstance(each, Pass) for each in item.passes)
    if not is_flat or item.max_iterations != Pipeline("any", ["dce"]).max_iterations:
        raise ArgumentError(
            f"the pipeline {item.name!r} is not flat, or has max_iterations, which "
            "--pass cannot say"
        )
    return "+".join(map(spelled, item.passes)) + "*" * item.fixed_point
