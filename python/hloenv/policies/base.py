# SPDX-License-Identifier: Apache-2.0
"""What a policy is, and the policies by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._registry import Info, Registry
from ..errors import ArgumentError, HloEnvError
from ..rewrite.policy import Policy


class UnknownPolicyError(HloEnvError, LookupError):
    """No policy has this name."""


class PolicySpecError(ArgumentError):
    """What stands behind the colon of a policy's name makes no sense."""


PolicyInfo = Info


_REGISTRY: Registry[Callable[..., Policy]] = Registry(
    "policy", "policies", UnknownPolicyError
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
    return _REGISTRY.describe(name)


def get_policy(name: str, *, seed: int = 0) -> Policy:
    """Makes the policy of this name.

    Args:
        name: one of `list_policies()`, or a member of a family: "share:0.5",
            "mix:fusion=fewest-ops,general-fusion=fuse-by-bytes".
        seed: of what it draws.

    Raises:
        UnknownPolicyError: no policy has this name.
        PolicySpecError: nothing can be made of what stands behind the colon.
    """
    make, spec = _REGISTRY.find(name)
    arguments: tuple[Any, ...] = (seed,) if spec is None else (spec, seed)
    return make(*arguments)
