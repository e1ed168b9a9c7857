# SPDX-License-Identifier: Apache-2.0
"""What decides the signatures of a function: a given policy, or hloenv's own rules."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import cast

from ..errors import ArgumentError, ArgumentTypeError, CompileError
from ..hlo.module import HloModule
from ..hlo.passes import Pipeline
from ..hlo.pipeline import finish
from ..policies import Policy, get_policy
from .attempts import Attempt, Planner
from .auto import Auto
from .decide import Decided, Passes, as_pipelines, check_compiles, decide
from .stages import Stages


class Given:
    """Decisions of one policy on given passes; route "wheel"."""

    is_auto = False

    def __init__(
        self,
        policy: Policy,
        pipelines: Sequence[Pipeline],
        until: str | None,
        text: str | None,
        *,
        always: bool,
    ) -> None:
        """Decides always, or only where the result differs from XLA's default."""
        self.text = text
        self._always = always
        self._policy = policy
        self._pipelines = pipelines
        self._until = until

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`."""
        module = stages.module
        decided = decide(module, self._policy, self._pipelines, until=self._until)
        if not self._always and _is_default(decided):
            reason = "the decisions give the same compiled module as XLA's default"
            yield Attempt("given", decided, reason=reason)
            return
        check_compiles(decided.result)
        yield Attempt("given", decided, replace=functools.partial(give, decided))


def give(decided: Decided, theirs: HloModule) -> Decided:
    """The decided module in the place of one of jaxlib's.

    Raises:
        CompileError: jaxlib's has other layouts.
    """
    if theirs.entry_layout != decided.result.entry_layout:
        raise CompileError(
            f"jaxlib's module has entry layout {theirs.entry_layout}, but the decided "
            f"module has {decided.result.entry_layout}"
        )
    return decided


def _is_default(decided: Decided) -> bool:
    """Whether the decisions give XLA's default module."""
    if decided.num_accepted == decided.num_rejected == 0:
        return True
    return decided.result.fingerprint() == finish(decided.module).fingerprint()


class Kept:
    """Only what `hloenv.tune` has kept; everything else is plain jax.jit."""

    text: str | None = "tuned"
    is_auto = True

    def attempts(self, stages: Stages) -> Iterator[Attempt]:
        """As in `Planner`: none."""
        module = stages.module
        undecided = Decided(module, module, route="stablehlo")
        yield Attempt("tuned", undecided, reason="nothing is tuned for it")


def planner_of(
    policy: str | Policy | Planner,
    passes: Passes | None,
    until: str | None,
    *,
    always: bool,
) -> Planner:
    """The planner of `jit`'s arguments; `always` as in `Given`.

    Raises:
        ArgumentError: "auto" was given passes.
        ArgumentTypeError: the policy is not callable, or passes are not passes.
        UnknownPassError: no pass has this name.
        UnknownPolicyError: no policy has this name.
    """
    if isinstance(policy, str) and policy in ("auto", "tuned"):
        if passes is not None:
            raise ArgumentError(
                f"passes={passes!r} need a policy: policy={policy!r} decides its own "
                "passes; see hloenv.policies.list_policies()"
            )
        return Auto() if policy == "auto" else Kept()
    if hasattr(policy, "attempts"):
        return cast("Planner", policy)
    pipelines = as_pipelines("algsimp" if passes is None else passes)
    text = None
    if isinstance(policy, str):
        plan = [policy, until, [each.to_json() for each in pipelines]]
        text = json.dumps(plan, sort_keys=True)
        policy = get_policy(policy)
    if not callable(policy):
        raise ArgumentTypeError(
            "policy must be a name, or a function from Alternatives to decisions, "
            f"got {type(policy).__name__}"
        )
    return Given(policy, pipelines, until, text, always=always)
