# SPDX-License-Identifier: Apache-2.0
"""What the map of the dataset's programs says about rewrites, as a table.

`scripts/reports/run_rewrite_map.py --known` writes it. A rule is in it if it costs in
every program that it changes, and by measurements in at least one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .aggregate import RuleWorth

_FILE = Path(__file__).with_name("known.json")
# The largest worth of a rule that costs.
_COSTS = 0.9
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
        and each.best.row.best_worth <= _NOISE
        and each.worst.row.high < 1
    ]


def write_known(rules: Sequence[KnownRule], path: Path = _FILE) -> None:
    """Writes the table."""
    path.write_text(json.dumps([asdict(each) for each in rules], indent=1) + "\n")


@functools.cache
def known_rules() -> dict[tuple[str, str, str], KnownRule]:
    """The shipped table, by pass, rule and shape class."""
    if not _FILE.exists():
        return {}
    rules = [KnownRule(**each) for each in json.loads(_FILE.read_text())]
    return {each.key: each for each in rules}
