# SPDX-License-Identifier: Apache-2.0
"""Entries of a module that record the decisions about XLA's passes.

    "fusion"         XLA skips this pass from here on;
    "algsimp?"       rewrites of this pass have been decided;
    "algsimp?1f0c…"  this rewrite of it was rejected: later runs do not make it;
    "algsimp!1"      the decisions replace the next run of the pass, before which the
                     module is; "1" if they changed the module, else "0".

A rejected rewrite is identified by what the originals compute from their operands and
by their replacement, so that it does not restrict rewrites of instructions that later
passes add.
"""

from __future__ import annotations

from collections.abc import Iterable

Entries = frozenset[str]


def pass_names_of(entries: Entries) -> frozenset[str]:
    """Returns the names of the decided passes."""
    return frozenset(each.partition("?")[0] for each in entries if "!" not in each)


def has_rejections(entries: Entries) -> bool:
    """Whether a rewrite was rejected."""
    return any(each.partition("?")[2] for each in entries)


def moved_on(entries: Entries) -> Entries:
    """`entries` after XLA's pipeline has continued."""
    return frozenset(each for each in entries if "!" not in each)


def with_run(entries: Entries, name: str, *, changed: bool) -> Entries:
    """`entries` after the next run of pass `name` has been made."""
    yes, no = f"{name}!1", f"{name}!0"
    if changed or yes in entries:
        return (entries - {no}) | {yes}
    return entries | {no}


def was_run(entries: Entries, name: str) -> bool:
    """Whether the next run of pass `name` has been made."""
    return f"{name}!1" in entries or f"{name}!0" in entries


def with_decisions(
    entries: Entries, names: Iterable[str], rejected: Iterable[str]
) -> Entries:
    """`entries` after rewrites of passes `names` were decided, some rejected."""
    return entries | {f"{name}?" for name in names} | frozenset(rejected)
