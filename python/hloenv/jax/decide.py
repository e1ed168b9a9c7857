# SPDX-License-Identifier: Apache-2.0
"""Applies a policy to a function lowered by jax."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .._typing import BoolArray, Int64Array
from ..errors import ArgumentTypeError, CompileError, PositionError
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline, as_pipeline
from ..hlo.pipeline import finish
from ..policies import Policy
from ..process import child
from ..rewrite.alternatives import Alternatives, Choice, as_decisions, capture
from ..rewrite.choice_deltas import is_original
from ..rewrite.env import HloEnv
from ..rewrite.placement import place_of
from ..runtime.executable import Engine
from .lowering import HOISTED, has_hoisted_constants

# A single pass is a sequence of one.
Passes = str | Pass | Pipeline | Sequence[str | Pass | Pipeline]
Route = Literal["stablehlo", "wheel", "jaxlib"]
# Captures of one pass; each decides one more of the operations that follow each other.
_MAX_ROUNDS = 4
# Forms in which there is something that may get another one.
_OPENING = frozenset(
    (
        *("fusion-cuts/repeated", "fusion-cuts/bounded", "fusion-cuts/joined"),
        *("fusion-cuts/halo", "fusion-cuts/summed", "fusion-cuts/spread"),
        *("fusion-cuts/recomputed", "reduce-forms/packed_index"),
    )
)
# Serialized modules that are larger are not kept.
_MAX_KEPT_BYTES = 1 << 18


@dataclass(frozen=True)
class Decided:
    """The decisions for one signature.

    Attributes:
        module: the module lowered by jax; an empty one named "not_kept" in `considered`
            if it is large, so that constants (as weights of a closure) are not held, or
            if the function was left to plain jax.jit without a look at it.
        applied: the module with the decisions, before the rest of XLA's passes; as
            `module`.
        num_alternatives: number of alternatives.
        num_rejected: number of decisions for the original; the others are left to XLA.
        accepted: number of accepted choices by pass and rule.
        route: how the result goes back into jax; see `hloenv.jax.attempts`.
        is_used: whether `result` runs, rather than the module of plain jax.jit.
        speedup: jax.jit's time over that of `result`, on the first call's arguments;
            None if they were not compared.
        interval: 95 % interval of `speedup`.
        reason: why `result` does not run; empty if it does.
        then: what was decided on jaxlib's module, after the decisions of the route
            "stablehlo"; None if nothing was.
        signature: the types of the arguments.
        tuned: what `hloenv.tune` has decided, in words: "nothing" where nothing was
            faster; "" if it did not.
        left_out: operations of which jaxlib's compiler is told not to give any to its
            library, in words; "" for none.
        options: of jaxlib's compiler, besides, as NAME=VALUE; "" for none.
        engine: the XLA that generates the code.
        fresh_bytes: memory that a call gets from the system anew; 0 if unknown.
    """

    module: HloModule
    applied: HloModule
    num_alternatives: int = 0
    num_rejected: int = 0
    accepted: Mapping[str, int] = field(default_factory=dict)
    route: Route = "wheel"
    is_used: bool = True
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    then: Decided | None = None
    signature: str = ""
    tuned: str = ""
    left_out: str = ""
    options: str = ""
    engine: Engine = "jaxlib"
    fresh_bytes: int = 0

    @property
    def num_accepted(self) -> int:
        """Number of decisions for a choice other than the original."""
        return sum(self.accepted.values())

    @functools.cached_property
    def result(self) -> HloModule:
        """The decided module; of the route "wheel", after the rest of XLA's passes."""
        return finish(self.applied) if self.route == "wheel" else self.applied

    @classmethod
    def nothing(cls) -> Decided:
        """No decisions, on a module that is not read."""
        return cls(_not_kept(), _not_kept())

    def without_large_modules(self) -> Decided:
        """The decisions, with an empty module in place of a large one."""
        return replace(
            self,
            module=_if_small(self.module),
            applied=_if_small(self.applied),
            then=self.then and self.then.without_large_modules(),
        )


def _if_small(module: HloModule) -> HloModule:
    return module if len(module.to_proto()) <= _MAX_KEPT_BYTES else _not_kept()


@functools.cache
def _not_kept() -> HloModule:
    return HloModule.from_text("HloModule not_kept\nENTRY e { ROOT r = () tuple() }")


def as_pipelines(passes: Passes) -> tuple[Pipeline, ...]:
    """The passes as pipelines, in order.

    Raises:
        ArgumentTypeError: the argument is not one or several passes.
        UnknownPassError: no pass has this name.
    """
    if isinstance(passes, str | Pass | Pipeline):
        passes = [passes]
    if not isinstance(passes, Iterable):
        raise ArgumentTypeError(
            "passes must be one or several names, Pass or Pipeline objects, got "
            f"{type(passes).__name__}"
        )
    return tuple(as_pipeline(each) for each in passes)


def decide(
    module: HloModule,
    policy: Policy,
    pipelines: Iterable[Pipeline],
    *,
    until: str | None = None,
    route: Route = "wheel",
) -> Decided:
    """Applies a policy to each pass in order, each on the previous result.

    Args:
        module: as jax lowers it.
        policy: for all passes.
        pipelines: the passes to decide, in order.
        until: position in XLA's pipeline, as in `HloEnv.run_until`; None for the
            module as jax lowers it.
        route: of the result.

    Raises:
        DecisionError: the policy's decisions do not match the alternatives.
        PassError: a pass fails.
    """
    env = HloEnv(module)
    if until is not None:
        env.run_until(until)
    counts = Counts()
    if route != "wheel":
        counts = decide_in_rounds(env, policy, pipelines)
    else:
        for pipeline in pipelines:
            _move_to(env, place_of(pipeline))
            alternatives = env.get_alternatives(pipeline)
            decisions = as_decisions(policy(alternatives))
            env.apply_alternatives(decisions, alternatives, partial=True)
            everywhere = np.ones(len(decisions), np.bool_)
            counts.add(alternatives, decisions, everywhere)
    return Decided(
        *(module, env.module, counts.alternatives, counts.rejected, counts.accepted),
        route,
    )


@dataclass
class Counts:
    """How much was decided.

    Attributes:
        alternatives: number of alternatives.
        rejected: number of decisions for the original.
        accepted: number of accepted choices, by pass and rule.
    """

    alternatives: int = 0
    rejected: int = 0
    accepted: Counter[str] = field(default_factory=Counter)

    def add(
        self, alternatives: Alternatives, decisions: Int64Array, which: BoolArray
    ) -> Counter[str]:
        """Adds decisions, and returns how many choices were taken, by label.

        Args:
            alternatives: the alternatives.
            decisions: [A] integers.
            which: [A] those that count as taken.
        """
        self.alternatives += len(alternatives)
        self.rejected += int(np.count_nonzero(decisions == 0))
        taken = _accepted(alternatives, decisions, which)
        self.accepted += taken
        return taken


def decide_in_rounds(
    env: HloEnv, policy: Policy, pipelines: Iterable[Pipeline]
) -> Counts:
    """Applies a policy to each pass in order, and again where that may find more.

    The module may be of jaxlib's pipeline: none of the wheel's positions are looked at.

    Args:
        env: whose module is decided.
        policy: for all passes.
        pipelines: the passes to decide, in order.

    Raises:
        DecisionError: the policy's decisions do not match the alternatives.
        PassError: a pass fails.
    """
    counts = Counts()
    for pipeline in pipelines:
        for _ in range(_MAX_ROUNDS):
            alternatives = capture(env.module, [pipeline], owner=env.snapshot())
            decisions = as_decisions(policy(alternatives))
            env.apply_alternatives(decisions, alternatives, partial=True)
            has_effect = alternatives.relevant(np.maximum(decisions, 0))
            taken = counts.add(alternatives, decisions, has_effect)
            # A form reads what the module has: of two that follow each other, the
            # second reads the first as it was.
            if (
                has_effect[decisions > 0].all()
                and not _reads_original(alternatives, decisions)
                and _OPENING.isdisjoint(taken)
            ):
                break
    return counts


def _reads_original(alternatives: Alternatives, decisions: Int64Array) -> bool:
    """Whether a choice that is taken reads what another one takes the place of."""
    graph = alternatives.graph
    taken = np.flatnonzero(decisions > 0)
    if len(taken) < 2:
        return False
    first, offsets = graph.site_offsets, graph.site_choice_offsets
    replaced, stack = set[int](), list[int]()
    for index in taken.tolist():
        for site in range(first[index], first[index + 1]):
            replaced.add(int(graph.site_choice_nodes[offsets[site]]))
            stack.append(int(graph.site_choice_nodes[offsets[site] + decisions[index]]))
    is_made = ~is_original(alternatives)
    visited = set(stack)
    while stack:
        node = stack.pop()
        if node in replaced:
            return True
        if not is_made[node]:
            continue
        begin, end = graph.in_offsets[node : node + 2]
        sources = set(graph.edge_sources[begin:end].tolist()) - visited
        visited |= sources
        stack += sources
    return False


def only_rules(policy: Policy, is_wanted: Callable[[str], bool]) -> Policy:
    """A policy that leaves the choices of other rules to XLA.

    Args:
        policy: that decides.
        is_wanted: takes a label such as "dot-forms/swapped".
    """

    def decided(alternatives: Alternatives) -> Int64Array:
        decisions = np.array(policy(alternatives), np.int64)
        for index in np.flatnonzero(decisions > 0).tolist():
            if not is_wanted(label_of(alternatives[index].choices[decisions[index]])):
                decisions[index] = -1
        return decisions

    return decided


def _accepted(
    alternatives: Alternatives, decisions: Int64Array, which: BoolArray
) -> Counter[str]:
    """How many choices other than the original were taken, by label.

    Args:
        alternatives: the alternatives.
        decisions: [A] integers.
        which: [A] those that count.
    """
    return Counter(
        label_of(alternatives[index].choices[decisions[index]])
        for index in np.flatnonzero((decisions > 0) & which).tolist()
    )


def label_of(choice: Choice) -> str:
    """Its pass and rule, such as "dot-forms/swapped"."""
    return "/".join(filter(None, (choice.passes[0], choice.rule)))


def _move_to(env: HloEnv, place: str | None) -> None:
    """Runs XLA's pipeline up to `place`, unless the module is past it."""
    position = env.module.position
    if place is None:
        return
    try:
        env.run_until(place)
    except PositionError:
        if position is None or not position.has_layouts:
            raise


def check_compiles(result: HloModule, *, timeout_s: float | None = None) -> None:
    """Compiles a module of jaxlib's in a child process, as XLA may crash on it.

    First by the wheel's XLA, whose child starts sooner; it lacks code for some of what
    jaxlib's passes make, as of scatters that are not simplified.

    Raises:
        CompileError: XLA cannot compile it.
        MeasureTimeout: it took longer than `timeout_s`.
    """
    content = result.to_bytes()
    try:
        child.try_compile(content, "none", timeout_s=timeout_s)
    except CompileError:
        child.try_compile(content, "none", engine="jaxlib", timeout_s=timeout_s)


def unsupported(jax: Any, traced: Any, lowered: Any, leaves: list[Any]) -> str | None:
    """Returns why a function cannot be decided for one CPU device; None if it can.

    Args:
        jax: the package.
        traced: a `jax.stages.Traced` of the function.
        lowered: the `jax.stages.Lowered` of that.
        leaves: the call's arguments.
    """
    reason = unsupported_function(traced, lowered)
    return reason or other_devices(jax, lowered, leaves)


def unsupported_function(traced: Any, lowered: Any) -> str | None:
    """Returns why a function cannot be decided for one device; None if it can.

    Args:
        traced: as for `unsupported`.
        lowered: as for `unsupported`.
    """
    if effects := side_effects(traced):
        return effects
    if has_hoisted_constants(lowered):
        return HOISTED
    if has_equation(traced.jaxpr, _places):
        return (
            "it places values (device_put, with_sharding_constraint, shard_map or the "
            "shardings of an inner jax.jit)"
        )
    return _several_devices(lowered)


def side_effects(traced: Any) -> str | None:
    """Returns which side effects a traced function has, in words; None for none."""
    effects = sorted(str(each) for each in traced.jaxpr.effects)
    return f"it has side effects ({', '.join(effects)})" if effects else None


def has_equation(jaxpr: Any, test: Callable[[Any], bool]) -> bool:
    """Whether an equation of a jaxpr, or of one inside it, passes a test."""
    for each in jaxpr.eqns:
        if test(each):
            return True
        for value in each.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if hasattr(inner, "eqns") and has_equation(inner, test):
                    return True
    return False


def _places(equation: Any) -> bool:
    """Whether it says on which devices, or in which memory, a value is."""
    name, params = equation.primitive.name, equation.params
    if name == "device_put":
        return any(each is not None for each in params.get("devices", ()))
    if name in ("sharding_constraint", "shard_map"):
        return True
    return any(
        each is not None and type(each).__name__ != "UnspecifiedValue"
        for which in ("in_shardings", "out_shardings", "in_layouts", "out_layouts")
        for each in params.get(which) or ()
    )


# A rule whose products jaxlib has a library for; other XLAs may not run them.
OF_LIBRARY = "dot-forms/wide"
RANDOM_STATE = "it draws other random numbers in each call (jax.lax.rng_uniform)"
UNSHAREABLE = (
    "the options that it is compiled with need arguments whose pytrees can be made of "
    "types alone"
)
KEEPS_DONATED = (
    "keeps its donated arguments: jaxlib drops the donations of a replaced module"
)
# A signature with options of the compiler needs a function of jax.jit of its own.
LATER_OPTIONS = (
    "another signature of this function was decided before: options of the compiler "
    "are for the first"
)


def other_devices(jax: Any, lowered: Any, leaves: list[Any]) -> str | None:
    """Returns why a call does not run on one CPU device; None if it does.

    Args:
        jax: the package.
        lowered: a `jax.stages.Lowered` of the function.
        leaves: the call's arguments.
    """
    if several := _several_devices(lowered):
        return several
    committed = {
        device
        for leaf in leaves
        if isinstance(leaf, jax.Array) and leaf.committed
        for device in leaf.devices()
    }
    default = jax.config.jax_default_device or jax.devices()[0]
    platforms = {
        device if isinstance(device, str) else device.platform
        for device in committed or {default}
    }
    if platforms != {"cpu"}:
        return (
            f"it runs on {', '.join(sorted(platforms))}; hloenv.jit supports only cpu"
        )
    return None


def _several_devices(lowered: Any) -> str | None:
    """Returns how many devices a function is for; None for one."""
    attributes = lowered.compiler_ir("stablehlo").operation.attributes
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        if name in attributes and attributes[name].value != 1:
            return (
                f"it runs on {attributes[name].value} devices; hloenv supports one "
                "device"
            )
    return None
