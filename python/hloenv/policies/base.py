# SPDX-License-Identifier: Apache-2.0
"""The registry of policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._plugins import attribute_of_file, check_call, check_entry, split_file
from .._registry import Info, Registry
from ..errors import ArgumentError, ArgumentTypeError, HloEnvError
from ..rewrite.policy import Policy


class UnknownPolicyError(HloEnvError, LookupError):
    """No policy has this name."""


class PolicySpecError(ArgumentError):
    """The specification after the colon of a policy's name is not valid."""


PolicyInfo = Info


_REGISTRY: Registry[Callable[..., Policy]] = Registry(
    "policy", "policies", UnknownPolicyError, group="hloenv.policies"
)


def register_policy(
    name: str,
    summary: str,
    make: Callable[..., Policy] | str,
    *,
    is_random: bool = False,
    alias: str = "",
) -> None:
    """Registers a policy under a name, also for the command line.

    Args:
        name: lower case, words joined by "-"; of a family with a specification, then
            ":" and the specification: "share:PROBABILITY".
        summary: one sentence.
        make: from a seed to the policy, called once for each `get_policy`; of a family
            from the specification and a seed; or its location,
            "package.module:name".
        is_random: whether it depends on the seed.
        alias: another name, not listed.

    Raises:
        ArgumentTypeError: the summary is no text, as where it and `make` are swapped.
        ValueError: the name is taken.
    """
    check_entry(name, summary, make)
    _REGISTRY.add(name, summary, make, is_random=is_random, alias=alias)


def list_policies(*, families: bool = False) -> tuple[str, ...]:
    """Names of all policies, sorted; or of the families that take a specification."""
    return _REGISTRY.names(families=families)


def describe_policy(name: str) -> PolicyInfo:
    """Describes a policy or a family.

    Raises:
        UnknownPolicyError: no policy has this name.
    """
    return _REGISTRY.describe(name)


def get_policy(name: str, *, seed: int = 0) -> Policy:
    """Makes the policy of this name.

    Args:
        name: one of `list_policies()`, or a member of a family: "share:0.5",
            "mix:fusion=fewest-ops,general-fusion=fuse-by-bytes"; or "my.py:name", a
            policy of that file, or a class of policies that takes no arguments.
        seed: of the random draws.

    Raises:
        UnknownPolicyError: no policy has this name.
        PolicySpecError: the specification after the colon is not valid.
        PluginError: the file cannot be imported.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"get_policy needs the name of a policy, got {type(name).__name__}"
        )
    if own := split_file(name):
        policy = attribute_of_file(*own)
        if isinstance(policy, type):
            check_call(policy, f"{name}()")
            policy = policy()
        return as_policy(policy, name)
    make, spec = _REGISTRY.find(name)
    arguments: tuple[Any, ...] = (seed,) if spec is None else (spec, seed)
    return make(*arguments)


def as_policy(policy: object, name: str) -> Policy:
    """Checks that a user's policy is callable.

    Raises:
        PolicySpecError: it is not callable.
    """
    if not callable(policy):
        raise PolicySpecError(
            f"{name} is a {type(policy).__name__}; a policy is a function from "
            "Alternatives to one integer for each of them"
        )
    check_call(policy, f"{name}(alternatives)", None)
    checked: Policy = policy
    return checked
