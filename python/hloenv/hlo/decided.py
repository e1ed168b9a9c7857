# SPDX-License-Identifier: Apache-2.0
"""What has been decided about XLA's passes: entries that go with a module.

    "fusion"         XLA leaves this pass out from here on;
    "algsimp?"       rewrites of this pass have been decided;
    "algsimp?1f0c…"  this rewrite of it was rejected: later runs do not make it;
    "algsimp!1"      the decisions stand for the run of the pass in front of which the
                     module is; "1" where they changed something, else "0".

A rejected rewrite is known again by what the originals compute from their operands and
by what would replace them, so that what later passes make is not bound by it.
"""

from __future__ import annotations

from collections.abc import Iterable

Entries = frozenset[str]


def pass_names_of(entries: Entries) -> frozenset[str]:
    """Names of the passes that were decided."""
    return frozenset(each.partition("?")[0] for each in entries if "!" not in each)


def moved_on(entries: Entries) -> Entries:
    """`entries` once XLA's pipeline has gone on."""
    return frozenset(each for each in entries if "!" not in each)


def with_run(entries: Entries, name: str, *, changed: bool) -> Entries:
    """`entries` where the next run of pass `name` has been made."""
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
    """`entries` where rewrites of passes `names` were decided, and some rejected."""
    return entries | {f"{name}?" for name in names} | frozenset(rejected)
