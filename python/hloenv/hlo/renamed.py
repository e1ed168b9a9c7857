# SPDX-License-Identifier: Apache-2.0
"""Earlier names of passes, for files from earlier versions."""

from __future__ import annotations

# From the earlier name to the current one.
RENAMED = {"dot-strategy": "dot-lowering", "execution-strategy": "thunk-order"}


def current_name(name: str) -> str:
    """Returns the current name of a pass, given its current or an earlier one."""
    return RENAMED.get(name, name)


def current_entry(entry: str) -> str:
    """Renames the pass at the start of an entry of `decided`."""
    for earlier, name in RENAMED.items():
        if entry.startswith((f"{earlier}?", f"{earlier}!")) or entry == earlier:
            return name + entry.removeprefix(earlier)
    return entry


def stored_entry(entry: str) -> str:
    """Returns the entry with the earliest name of its pass, as in keys of the store."""
    for earlier, name in RENAMED.items():
        if entry.startswith((f"{name}?", f"{name}!")) or entry == name:
            return earlier + entry.removeprefix(name)
    return entry
