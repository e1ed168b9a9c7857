# SPDX-License-Identifier: Apache-2.0
"""Configurations, and the space of those that a tuning may choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ArgumentError
from .decisions import (
    CLASSES,
    DECISIONS,
    LEFT,
    PLAIN,
    WHEEL,
    Choice,
    Class,
    Decision,
    Engines,
    decisions_of_rules,
)
from .stages import check_stages, reopened_by, stage_names


@dataclass(frozen=True)
class Configuration:
    """A choice for each decision.

    Attributes:
        choices: pairs of a decision and a choice, sorted; XLA's own are left out.
        graph: decisions at the points of `Space.graph_points`, which a search has made
            instead of the policies; () for none.
    """

    choices: tuple[tuple[str, str], ...] = ()
    graph: tuple[tuple[int, ...], ...] = ()

    def of(self, decision: str) -> str | None:
        """The name of the choice; None for XLA's own."""
        return dict(self.choices).get(decision)

    def with_choice(self, decision: str, choice: str | None) -> Configuration:
        """The same with another choice; None for XLA's own."""
        chosen = dict(self.choices)
        chosen.pop(decision, None)
        if choice is not None:
            chosen[decision] = choice
        return replace(self, choices=tuple(sorted(chosen.items())))

    @property
    def text(self) -> str:
        """In words, such as "forms=known, vectors=512"; "xla" if nothing is decided."""
        parts = [f"{decision}={choice}" for decision, choice in self.choices]
        count = sum(each > 0 for point in self.graph for each in point)
        if count:
            parts.append(f"{count} rewrites by search")
        return ", ".join(parts) or "xla"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "choices": [list(each) for each in self.choices],
            "graph": [list(each) for each in self.graph],
        }

    @classmethod
    def from_json(cls, data: Any) -> Configuration:
        """Reads the result of `to_json`.

        Raises:
            ValueError: this is not a configuration.
        """
        try:
            return cls(
                tuple((str(name), str(choice)) for name, choice in data["choices"]),
                tuple(tuple(int(each) for each in point) for point in data["graph"]),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"this is not a configuration: {error}") from None


class Space:
    """The decisions of some stages, in some numerical classes.

    Attributes:
        stages: names, in order.
        numerics: the widest class of choices.
        decisions: those of the stages that have more than one choice.
    """

    def __init__(
        self,
        stages: Sequence[str] | None = None,
        *,
        numerics: Class = "reassociating",
        donates: bool = False,
        rules: Sequence[str] = (),
    ) -> None:
        """Selects from `DECISIONS`.

        Args:
            stages: names; None for all.
            numerics: the widest class of choices.
            donates: whether the program donates arguments, which jaxlib drops from a
                module that is replaced: only what its own pipeline follows is left.
            rules: labels of those that apply to the program; each may be left to XLA.

        Raises:
            ArgumentError: an unknown stage or class.
        """
        self.stages = check_stages(stage_names() if stages is None else stages)
        if numerics not in CLASSES:
            raise ArgumentError(
                f"numerics must be one of {', '.join(CLASSES)}, got {numerics!r}"
            )
        self.numerics = numerics
        allowed = CLASSES[: CLASSES.index(numerics) + 1]
        found = []
        for each in DECISIONS:
            choices = tuple(
                choice
                for choice in each.choices
                if choice.numerics in allowed
                and not (donates and _replaces_module(choice))
            )
            if each.stage in self.stages and len(choices) > 1:
                found.append(replace(each, choices=choices))
        names = {each.name for each in found}
        found += (each for each in decisions_of_rules(rules) if each.needs in names)
        self.decisions = tuple(found)
        self._by_name = {each.name: each for each in found}

    def decision(self, name: str) -> Decision:
        """The decision of this name.

        Raises:
            ArgumentError: there is none.
        """
        if name not in self._by_name:
            raise ArgumentError(
                f"no decision is named {name!r}; there are {', '.join(self._by_name)}"
            )
        return self._by_name[name]

    def of_stage(self, stage: str) -> tuple[Decision, ...]:
        """The decisions of one stage."""
        return tuple(each for each in self.decisions if each.stage == stage)

    def engines(self, configuration: Configuration) -> Engines:
        """The engines of a configuration."""
        name = configuration.of("engine")
        if name is None or "engine" not in self._by_name:
            return PLAIN
        return self._by_name["engine"].choice(name).engines or PLAIN

    def has(self, configuration: Configuration) -> bool:
        """Whether all of its choices are in the space."""
        return all(
            decision in self._by_name
            and any(each.name == choice for each in self._by_name[decision].choices)
            for decision, choice in configuration.choices
        )

    def without_other_rules(self, configuration: Configuration) -> Configuration:
        """A configuration of another program, without rules that do not apply here."""
        kept = (
            (name, choice)
            for name, choice in configuration.choices
            if choice != LEFT or name in self._by_name
        )
        return replace(configuration, choices=tuple(kept))

    def canonical(self, configuration: Configuration) -> Configuration:
        """The same without choices that have no effect.

        These are XLA's own, and those of decisions that the engine does not have, or
        that need another decision.
        """
        graph = configuration.graph if self.engines(configuration) == WHEEL else ()
        # It decides what others would.
        kept = tuple(
            (decision.name, choice.name)
            for decision, choice in self.chosen(configuration)
            if not graph or choice.point is None
        )
        active = self.active(Configuration(kept))
        return Configuration(
            tuple(sorted(pair for pair in kept if self.decision(pair[0]) in active)),
            graph,
        )

    def active(self, configuration: Configuration) -> tuple[Decision, ...]:
        """The decisions that have an effect beside the others of a configuration."""
        engines = self.engines(configuration)
        chosen = {
            decision.name: choice for decision, choice in self.chosen(configuration)
        }

        def is_used(decision: Decision) -> bool:
            """Whether what it needs decides rewrites of its pass."""
            if not decision.needs:
                return True
            choice = chosen.get(decision.needs)
            passes = choice.point.passes if choice and choice.point else ()
            return decision.name.split("/")[0] in passes

        return tuple(
            each for each in self.decisions if engines in each.engines and is_used(each)
        )

    def chosen(self, configuration: Configuration) -> list[tuple[Decision, Choice]]:
        """The decisions that differ from XLA's own, in the order of the compiler."""
        names = dict(configuration.choices)
        return [
            (each, each.choice(names[each.name]))
            for each in self.decisions
            if names.get(each.name, each.choices[0].name) != each.choices[0].name
        ]

    def in_any_module(self, configuration: Configuration) -> Configuration:
        """Its choices for single kernels, which hold wherever these kernels occur."""
        kept = tuple(
            (decision.name, choice.name)
            for decision, choice in self.chosen(configuration)
            if decision.scope == "kernel" or decision.name == "engine"
        )
        return self.canonical(Configuration(kept))

    def numerics_of(self, configuration: Configuration) -> Class:
        """The widest class of its choices."""
        classes = [choice.numerics for _, choice in self.chosen(configuration)]
        if configuration.graph:
            classes.append("reassociating")
        return max(classes, key=CLASSES.index, default="exact")

    def only(self, configuration: Configuration, stage: str) -> Configuration:
        """The choices of one stage alone, with the engine that they need."""
        chosen = self.chosen(configuration)
        kept = Configuration(
            tuple(
                (decision.name, choice.name)
                for decision, choice in chosen
                if decision.stage == stage
            )
        )
        needs = any(
            PLAIN not in decision.engines
            for decision, _ in chosen
            if decision.stage == stage
        )
        if needs:
            kept = kept.with_choice("engine", configuration.of("engine"))
        return self.canonical(kept)

    def reopened(self, old: Configuration, new: Configuration) -> set[str]:
        """The stages whose choices a new best configuration may have made worse."""
        changed = {name for name, _ in set(old.choices) ^ set(new.choices)}
        stages = {self.decision(name).stage for name in changed}
        # One from elsewhere may lack what single stages have gained.
        if len(stages) > 1:
            return set(self.stages)
        return {each for stage in stages for each in reopened_by(stage, self.stages)}

    def without(self, configuration: Configuration, stage: str) -> Configuration:
        """The configuration with XLA's own choices at one stage."""
        for decision in self.of_stage(stage):
            configuration = configuration.with_choice(decision.name, None)
        return self.canonical(configuration)


def _replaces_module(choice: Choice) -> bool:
    return choice.loops or choice.engines not in (None, PLAIN)
