# SPDX-License-Identifier: Apache-2.0
"""hloenv alternatives: every rewrite that passes would make on a module."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..hlo.source import Source
from ..rewrite.alternatives import Alternative, Alternatives, Choice
from ..rewrite.env import HloEnv
from . import output
from .arguments import add_limit, add_module, add_passes, parse_passes
from .expressions import Expressions
from .load import load_module
from .numbers import add_count

DESCRIPTION = (
    "Dry-runs passes on a module and lists every rewrite that they would make: its "
    "site, the original, the replacement and the pass. The module is not changed."
)
EXAMPLES = """\
examples:
  hloenv alternatives model.hlo --pass algsimp
  hloenv alternatives model.hlo --pass algsimp --pass cse --limit 0
  hloenv alternatives model.hlo --pass 'algsimp+cse*'
  hloenv alternatives model.hlo --until fusion --pass general-fusion:multi_output=false
"""
_DEFAULT_LIMIT = 50
_MAX_EXPRESSION = 100


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_passes(parser)
    add_count(
        parser,
        "--limit",
        f"list N alternatives, 0 for all (default {_DEFAULT_LIMIT}; JSON: all)",
        least=0,
    )


def run(args: argparse.Namespace) -> None:
    """Lists the alternatives of `args.passes` on `args.module`."""
    env = HloEnv(load_module(args.module, args.max_instructions))
    if args.until is not None:
        env.run_until(args.until)
    alternatives = env.get_alternatives(*parse_passes(args.passes))
    default = 0 if args.json else _DEFAULT_LIMIT
    limit = default if args.limit is None else args.limit
    shown = alternatives[:limit] if limit else list(alternatives)
    if args.json:
        output.print_json(_as_json(env, alternatives, shown))
    else:
        _print(alternatives, shown)


def _as_json(
    env: HloEnv, alternatives: Alternatives, shown: list[Alternative]
) -> dict[str, Any]:
    expressions = Expressions(alternatives)
    return {
        "module": env.module.name,
        "fingerprint": env.fingerprint(),
        "passes": list(alternatives.pass_names),
        "indivisible": alternatives.indivisible,
        "count": len(alternatives),
        "alternatives": [
            {
                **_one_as_json(each, expressions),
                "source": source and source._asdict(),
            }
            for each, source in _with_sources(alternatives, shown)
        ],
    }


def _with_sources(
    alternatives: Alternatives, shown: list[Alternative]
) -> list[tuple[Alternative, Source | None]]:
    return [(each, alternatives.sources[each.index]) for each in shown]


def _one_as_json(alternative: Alternative, expressions: Expressions) -> dict[str, Any]:
    return {
        "index": alternative.index,
        "kind": alternative.kind,
        "sites": [asdict(site) for site in alternative.sites],
        "choices": [
            {**asdict(choice), "expression": text}
            for choice, text in _choices(alternative, expressions)
        ],
    }


def _choices(
    alternative: Alternative, expressions: Expressions
) -> list[tuple[Choice, str]]:
    """Each choice with its expression, the original first."""
    index, kind = alternative.index, alternative.kind
    original, *others = alternative.choices
    return [(original, expressions.original(index, kind))] + [
        (each, expressions.choice(index, number, kind, each.instructions))
        for number, each in enumerate(others, start=1)
    ]


def _print(alternatives: Alternatives, shown: list[Alternative]) -> None:
    if shown:
        expressions = Expressions(alternatives)
        rows = [
            row
            for each, source in _with_sources(alternatives, shown)
            for row in _rows(each, source, expressions)
        ]
        folded = ("where", "original", "becomes", "from")
        numbers = ("#", "choice", "adds", "removes")
        columns = ["#", "where", "original", "choice", "becomes", "by", *numbers[2:]]
        if any(alternatives.sources):
            columns.insert(3, "from")
        else:
            rows = [row[:3] + row[4:] for row in rows]
        output.print_table(
            tuple(columns),
            rows,
            right=numbers,
            fold=folded,
        )
        output.print_line()
    for name, reason in alternatives.indivisible.items():
        output.print_line(f"{name} is one indivisible alternative: {reason}")
    rest = len(alternatives) - len(shown)
    count = output.plural(len(alternatives), "alternative")
    output.print_line(
        f"{count} of {', '.join(alternatives.pass_names)}"
        + (f"; {rest} not shown (--limit 0 shows all)" if rest else "")
    )


def _rows(
    alternative: Alternative, source: Source | None, expressions: Expressions
) -> list[tuple[Any, ...]]:
    first, *sites = alternative.sites
    (_, original), *choices = _choices(alternative, expressions)
    where = f"{first.computation}/{first.original}"
    if sites:
        where += f" and {len(sites)} more"
    head: tuple[Any, ...] = (
        *(alternative.index, where, output.shortened(original, _MAX_EXPRESSION)),
        _short(source) if source else "",
    )
    rows = []
    for number, (choice, text) in enumerate(choices, start=1):
        passes = ", ".join(choice.passes)
        sizes = (len(choice.instructions), len(choice.makes_dead))
        rows.append(
            (*head, number, output.shortened(text, _MAX_EXPRESSION), passes, *sizes)
        )
        head = ("", "", "", "")
    return rows


def _short(source: Source) -> str:
    """The operation and the line, without the file's folder."""
    return str(source._replace(file=source.file.rpartition("/")[2]))
