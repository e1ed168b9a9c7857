# SPDX-License-Identifier: Apache-2.0
"""What a policy is, and the policies by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._plugins import attribute_of_file, split_file
from .._registry import Info, Registry
from ..errors import ArgumentError, HloEnvError
from ..rewrite.policy import Policy


class UnknownPolicyError(HloEnvError, LookupError):
    """No policy has this name."""


class PolicySpecError(ArgumentError):
    """What stands behind the colon of a policy's name makes no sense."""


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
    """Lets a policy be found by name, on the command line too.

    Args:
        name: lower case, words joined by "-"; of a family with a specification, then
            ":" and what that holds: "share:PROBABILITY".
        summary: what it decides, in a sentence.
        make: from a seed to the policy, called once for each `get_policy`; of a family
            from the specification and a seed; or where it is, "package.module:name".
        is_random: whether the seed makes a difference.
        alias: another name, which is not listed.

    Raises:
        ValueError: the name is taken.
    """
    _REGISTRY.add(name, summary, make, is_random=is_random, alias=alias)


def list_policies(*, families: bool = False) -> tuple[str, ...]:
    """Names of all policies, sorted; or of the families that take a specification."""
    return _REGISTRY.names(families=families)


def describe_policy(name: str) -> PolicyInfo:
    """Says what a policy, or a family, decides.

    Raises:
        UnknownPolicyError: no policy has this name.
    """
    if own := split_file(name):
        text = (get_policy(name).__doc__ or "").strip().partition("\n")[0]
        return PolicyInfo(name, text or f"{own[1]} of {own[0]}", False, own[0])
    return _REGISTRY.describe(name)


def get_policy(name: str, *, seed: int = 0) -> Policy:
    """Makes the policy of this name.

    Args:
        name: one of `list_policies()`, or a member of a family: "share:0.5",
            "mix:fusion=fewest-ops,general-fusion=fuse-by-bytes"; or "my.py:name", a
            policy of that file, or a class of policies that takes no arguments.
        seed: of what it draws.

    Raises:
        UnknownPolicyError: no policy has this name.
        PolicySpecError: nothing can be made of what stands behind the colon.
        PluginError: the file cannot be imported.
    """
    if own := split_file(name):
        policy = attribute_of_file(*own)
        return as_policy(policy() if isinstance(policy, type) else policy, name)
    make, spec = _REGISTRY.find(name)
    arguments: tuple[Any, ...] = (seed,) if spec is None else (spec, seed)
    return make(*arguments)


def as_policy(policy: object, name: str) -> Policy:
    """A policy that a user wrote, checked as far as that is possible.

    Raises:
        PolicySpecError: it cannot be called.
    """
    if not callable(policy):
        raise PolicySpecError(
            f"{name} is a {type(policy).__name__}; a policy is a function from "
            "Alternatives to one integer for each of them"
        )
    checked: Policy = policy
    return checked
