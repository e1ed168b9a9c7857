# SPDX-License-Identifier: Apache-2.0
"""Earlier names of passes, for files from earlier versions."""

from __future__ import annotations

# From the earlier name to the current one.
RENAMED = {"dot-strategy": "dot-lowering", "execution-strategy": "thunk-order"}


def current_name(name: str) -> str:
    """The name of a pass, given that or an earlier one."""
    return RENAMED.get(name, name)


def current_entry(entry: str) -> str:
    """The same for an entry of `decided`, which starts with the name of a pass."""
    for earlier, name in RENAMED.items():
        if entry.startswith((f"{earlier}?", f"{earlier}!")) or entry == earlier:
            return name + entry.removeprefix(earlier)
    return entry


def stored_entry(entry: str) -> str:
    """The spelling in keys of the store, which keeps the earliest name."""
    for earlier, name in RENAMED.items():
        if entry.startswith((f"{name}?", f"{name}!")) or entry == name:
            return earlier + entry.removeprefix(name)
    return entry
