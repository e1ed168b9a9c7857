# SPDX-License-Identifier: Apache-2.0
"""hloenv passes: lists the passes, or describes one with its options."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import Any

from ..hlo.pass_info import PassInfo, PassOption
from ..hlo.passes import (
    describe_pass,
    excluded_passes,
    list_passes,
)
from ..hlo.python_passes import origin_of_pass, python_pass_names
from . import output

DESCRIPTION = (
    "Lists the passes that can be captured, or describes one with its options."
)
EXAMPLES = """\
examples:
  hloenv passes
  hloenv passes algsimp
  hloenv passes factor --import my_rules.py
  hloenv passes --json | jq -r '.passes[].name'
"""

_OWN = "hloenv's own, each rewrite a choice"
_OF_USERS = "Yours, and those of installed packages, each rewrite a choice"
# A pass is listed under the first group whose pattern matches its name.
_GROUPS = (
    (_OF_USERS, r"(?!)"),
    (
        _OWN,
        r"^general-|^reassociate$|^merge-dots$|-forms$|^fusion-cuts$"
        r"|^dot-lowering$|^onednn-calls$|^(thunk-order|single-kernel)$",
    ),
    (
        "Pipelines of XLA's CPU compiler",
        r" |^simplification$|^post_|-passes$|^sharding-removal$",
    ),
    ("Fusion", r"fusion"),
    ("Control flow and calls", r"while|loop|conditional|call|map-inline|barrier"),
    (
        "Types and precision",
        r"bf16|float-norm|fp-|caster|upcast|promotion|data-type|convert|bitcast",
    ),
    ("Linear algebra", r"dot|conv|transpose-folding|cholesky|eigh|qr_|triangular"),
    ("Random numbers", r"rng"),
    ("Gather, scatter, reduce and sort", r"gather|scatter|reduc|sort|topk|slice|index"),
    (
        "Layout, memory and devices",
        r"reshape-decomposer|canonicalizer$|memory|parallel|combiner|library|copy|buffer|sharding|all_to|dynamic",
    ),
    ("Expanders", r"expander|decomposer"),
    ("Simplification", r""),
)


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="describe this pass")


def run(args: argparse.Namespace) -> None:
    """Lists passes, or describes `args.name`."""
    if args.name is not None:
        info = describe_pass(args.name)
        if args.json:
            output.print_json(_as_json(info))
        else:
            _print_one(info)
        return
    infos = [describe_pass(name) for name in list_passes()]
    if args.json:
        output.print_json(
            {
                "passes": [_as_json(info) for info in infos],
                "excluded": excluded_passes(),
            }
        )
    else:
        _print_all(infos)


def group_of(name: str) -> str:
    """The heading under which a pass is listed."""
    if origin_of_pass(name) != "hloenv":
        return _OF_USERS
    if name in python_pass_names():
        return _OWN
    return next(group for group, pattern in _GROUPS if re.search(pattern, name))


def _as_json(info: PassInfo) -> dict[str, Any]:
    name = info.name
    return {**asdict(info), "group": group_of(name), "origin": origin_of_pass(name)}


def _print_all(infos: list[PassInfo]) -> None:
    for group, _ in _GROUPS:
        members = [info for info in infos if group_of(info.name) == group]
        if not members:
            continue
        output.print_table(
            ("pass", "options", "decided by", "what it does"),
            [
                (i.name, len(i.options) or "", _decided_by(i), i.summary)
                for i in members
            ],
            title=group,
            right=("options",),
            fold=("what it does",),
        )
        output.print_line()
    output.print_line(
        f"{len(infos)} passes; hloenv passes NAME describes one. Decided by: the kinds "
        "of alternatives that a pass gave on real modules (- if it changed nothing)."
    )
    output.print_line()
    output.print_table(
        ("excluded", "because"), list(excluded_passes().items()), fold=("because",)
    )


_NUMERICS = {
    "exact": "exact, the same operations on the same values",
    "rounding": "the same up to rounding, within the range of their type",
    "unsafe": "NaN, infinities and the signs of zeros may change",
}
_KINDS = {"instruction": "node", "sites": "sites", "pass": "indivisible"}


def _decided_by(info: PassInfo) -> str:
    return ", ".join(_KINDS[kind] for kind in info.kinds) or "-"


def _print_one(info: PassInfo) -> None:
    output.print_line(f"{info.name} ({info.class_name})")
    output.print_line(info.summary)
    if (origin := origin_of_pass(info.name)) != "hloenv":
        output.print_line(f"From {origin}.")
    if info.candidate:
        output.print_line(
            "It proposes every legal rewrite as a choice; as a pass it applies all."
        )
    output.print_line(f"Floats: {_NUMERICS[info.numerics]}.")
    for reason in info.indivisible_reasons:
        output.print_line(f"It can be one indivisible alternative: {reason}.")
    if info.options:
        output.print_line()
        output.print_table(
            ("option", "type", "default", "meaning"),
            [(o.name, _type_of(o), _value_of(o), o.doc) for o in info.options],
            fold=("meaning",),
        )
        first = info.options[0]
        output.print_line()
        output.print_line(
            f"example: --pass {info.name}:{first.name}={_value_of(first)}"
        )


def _type_of(option: PassOption) -> str:
    if option.allowed:
        return "one of " + ", ".join(option.allowed)
    if option.minimum is not None:
        return f"{option.type} >= {option.minimum}"
    return option.type


def _value_of(option: PassOption) -> str:
    value = option.default
    return str(value).lower() if isinstance(value, bool) else str(value)
