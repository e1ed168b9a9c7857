# SPDX-License-Identifier: Apache-2.0
"""Entries of a module that record the decisions about XLA's passes.

    "fusion"         XLA skips this pass from here on;
    "algsimp?"       rewrites of this pass have been decided;
    "algsimp?1f0c…"  this rewrite of it was rejected: later runs do not make it;
    "algsimp!1"      the decisions replace the next run of the pass, before which the
                     module is; "1" if they changed the module, else "0"
    "algsimp!1="     the same, and they left what that run leaves, so that it is not
                     made again even if XLA's backend needs the pass

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


def identities_of(entries: Iterable[str]) -> frozenset[str]:
    """The identities of the rejected rewrites."""
    return frozenset(each.partition("?")[2] for each in entries) - {""}


def moved_on(entries: Entries) -> Entries:
    """`entries` after XLA's pipeline has continued."""
    return frozenset(each for each in entries if "!" not in each)


def with_run(
    entries: Entries, name: str, *, changed: bool, is_same: bool = False
) -> Entries:
    """`entries` after decisions have replaced the next run of pass `name`.

    Args:
        entries: before; as `changed_since` gives them, if the module was changed.
        name: of the pass.
        changed: whether they changed the module.
        is_same: whether the module is what XLA's run leaves.
    """
    before = "".join(_runs(entries, name))
    changed = changed or "1" in before
    is_same = is_same or "=" in before
    others = frozenset(each for each in entries if not each.startswith(f"{name}!"))
    return others | {f"{name}!{int(changed)}{'=' * is_same}"}


def was_run(entries: Entries, name: str) -> bool:
    """Whether the next run of pass `name` has been made."""
    return bool(_runs(entries, name))


def changed_since(entries: Entries) -> Entries:
    """`entries` after other passes have changed the module."""
    return frozenset(
        each.removesuffix("=") if "!" in each else each for each in entries
    )


def _runs(entries: Entries, name: str) -> list[str]:
    return [each.partition("!")[2] for each in entries if each.startswith(f"{name}!")]


def with_decisions(
    entries: Entries, names: Iterable[str], rejected: Iterable[str]
) -> Entries:
    """`entries` after rewrites of passes `names` were decided, some rejected."""
    return entries | {f"{name}?" for name in names} | frozenset(rejected)
