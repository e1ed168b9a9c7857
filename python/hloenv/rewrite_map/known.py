# SPDX-License-Identifier: Apache-2.0
"""What the map of the dataset's programs says about rewrites, as a table.

`scripts/reports/run_rewrite_map.py --known` writes `known_table.py`. A rule is in it if
it costs in every program that it changes, two at least, and by measurements in one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from .aggregate import RuleWorth
from .known_table import RULES

_FILE = Path(__file__).with_name("known_table.py")
_START = "RULES: tuple[tuple[str, str, str, float, int], ...] = "
# The largest worth of a rule that costs, and in how many programs it has to.
_COSTS, _PROGRAMS = 0.9, 2
# Effects of a rule that may be noise.
_NOISE = 1.03


@dataclass(frozen=True)
class KnownRule:
    """A rule that costs on a class of operations.

    Attributes:
        pass_name: the pass that makes the rewrite.
        rule: what becomes what.
        shape_class: class of the original by type and size.
        worth: geometric mean over the programs.
        num_programs: with the rule.
    """

    pass_name: str
    rule: str
    shape_class: str
    worth: float
    num_programs: int

    @property
    def key(self) -> tuple[str, str, str]:
        """Pass, rule and shape class."""
        return self.pass_name, self.rule, self.shape_class


def rules_that_cost(rules: Sequence[RuleWorth]) -> list[KnownRule]:
    """The rules of a map that cost wherever they change something."""
    return [
        KnownRule(
            each.pass_name, each.rule, each.shape_class, each.worth, each.num_programs
        )
        for each in rules
        if each.worth <= _COSTS
        and each.num_programs >= _PROGRAMS
        and each.best.row.best_worth <= _NOISE
        and each.num_measured_costs
    ]


def write_known(rules: Sequence[KnownRule], path: Path = _FILE) -> None:
    """Writes the table."""
    head = path.read_text(encoding="utf-8").partition(_START)[0]
    lines = ["("]
    for each in rules:
        lines.append("    (")
        lines += [f"        {_literal(value)}," for value in astuple(each)]
        lines.append("    ),")
    text = "\n".join([*lines, ")"]) if rules else "()"
    path.write_text(f"{head}{_START}{text}\n", encoding="utf-8")


def _literal(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


@functools.cache
def known_rules() -> dict[tuple[str, str, str], KnownRule]:
    """The shipped table, by pass, rule and shape class."""
    rules = [KnownRule(*each) for each in RULES]
    return {each.key: each for each in rules}
