# SPDX-License-Identifier: Apache-2.0
"""Rewrites of many programs, by pass, rule and shape class."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .rows import ProgramMap, RewriteRow


@dataclass(frozen=True)
class Case:
    """One rewrite in one program."""

    program: ProgramMap
    row: RewriteRow


@dataclass(frozen=True)
class RuleWorth:
    """The worth of one rule on one class of operations.

    Attributes:
        pass_name: the pass that makes the rewrite.
        rule: what becomes what.
        shape_class: class of the original by type and size.
        num_rewrites: how often it is made, equal ones included.
        num_programs: programs with it.
        num_repositories: projects of these programs.
        num_changes: cases, each a rewrite in a program, that change the kernels.
        num_measured_costs: cases whose measured interval is below 1.
        worth: geometric mean over the programs, by estimates or, if there are any,
            measurements; a program's is that of its case with the largest effect.
        worst: the case with the lowest worth.
        best: the case with the highest.
    """

    pass_name: str
    rule: str
    shape_class: str
    num_rewrites: int
    num_programs: int
    num_repositories: int
    num_changes: int
    num_measured_costs: int
    worth: float
    worst: Case
    best: Case

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; cases as program and identity."""
        fields = {
            name: value
            for name, value in vars(self).items()
            if name not in ("worst", "best")
        }
        for name in ("worst", "best"):
            case: Case = getattr(self, name)
            fields[name] = {"program": case.program.program, **asdict(case.row)}
        return fields


def aggregate(maps: Iterable[ProgramMap]) -> list[RuleWorth]:
    """Groups the rows with estimates by pass, rule and shape class.

    Returns:
        Those with the lowest worth first.
    """
    groups: defaultdict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for program in maps:
        for row in program.rows:
            if row.best_worth > 0:
                key = row.pass_name, row.rule, row.shape_class
                groups[key].append(Case(program, row))
    found = [_worth_of(key, cases) for key, cases in groups.items()]
    return sorted(found, key=lambda each: (each.worth, each.pass_name, each.rule))


def _worth_of(key: tuple[str, str, str], cases: Sequence[Case]) -> RuleWorth:
    of_program: dict[str, float] = {}
    for case in cases:
        name, effect = case.program.program, math.log(case.row.best_worth)
        if abs(effect) >= abs(of_program.get(name, 0.0)):
            of_program[name] = effect
    return RuleWorth(
        *key,
        num_rewrites=sum(case.row.count for case in cases),
        num_programs=len(of_program),
        num_repositories=len({_repository(case.program) for case in cases}),
        num_changes=sum(not case.row.is_noop for case in cases),
        num_measured_costs=sum(case.row.high < 1 for case in cases),
        worth=math.exp(math.fsum(of_program.values()) / len(of_program)),
        worst=min(cases, key=lambda case: case.row.best_worth),
        best=max(cases, key=lambda case: case.row.best_worth),
    )


def _repository(program: ProgramMap) -> str:
    return program.repository or program.program
