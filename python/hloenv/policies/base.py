# SPDX-License-Identifier: Apache-2.0
"""What a policy is, and the policies by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..errors import HloEnvError
from ..rewrite import Alternatives, Decisions


class UnknownPolicyError(HloEnvError, LookupError):
    """No policy has this name."""


class Policy(Protocol):
    """Decides what a dry run found.

    A policy may keep state from call to call (a random generator, a budget) but not
    change the alternatives. One that draws random numbers takes its seed where it is
    made, so that the same seed gives the same decisions.
    """

    def __call__(self, alternatives: Alternatives, /) -> Decisions:
        """[A] integers, the choice taken at each alternative; 0 is the original."""
        ...


@dataclass(frozen=True)
class PolicyInfo:
    """What `describe_policy` says of a policy.

    Attributes:
        name: as in `list_policies`.
        summary: what it decides, in a sentence.
        is_random: whether the seed makes a difference.
    """

    name: str
    summary: str
    is_random: bool


@dataclass(frozen=True)
class _Entry:
    info: PolicyInfo
    make: Callable[[int], Policy]


_REGISTRY: dict[str, _Entry] = {}


def register_policy(
    name: str, summary: str, make: Callable[[int], Policy], *, is_random: bool = False
) -> None:
    """Lets a policy be found by name, on the command line too.

    Args:
        name: lower case, words joined by "-".
        summary: what it decides, in a sentence.
        make: from a seed to the policy; called once for each `get_policy`.
        is_random: whether the seed makes a difference.

    Raises:
        ValueError: the name is taken.
    """
    if name in _REGISTRY:
        raise ValueError(f"a policy is named {name!r} already; choose another name")
    _REGISTRY[name] = _Entry(PolicyInfo(name, summary, is_random), make)


def list_policies() -> tuple[str, ...]:
    """Names of all policies, sorted."""
    return tuple(sorted(_REGISTRY))


def describe_policy(name: str) -> PolicyInfo:
    """Says what a policy decides.

    Raises:
        UnknownPolicyError: no policy has this name.
    """
    return _entry(name).info


def get_policy(name: str, *, seed: int = 0) -> Policy:
    """Makes the policy of this name.

    Raises:
        UnknownPolicyError: no policy has this name.
    """
    return _entry(name).make(seed)


def _entry(name: str) -> _Entry:
    entry = _REGISTRY.get(name)
    if entry is not None:
        return entry
    close = difflib.get_close_matches(str(name), _REGISTRY, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownPolicyError(
        f"no policy is named {name!r}; there are {', '.join(list_policies())}.{hint}"
    )
