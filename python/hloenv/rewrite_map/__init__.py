# SPDX-License-Identifier: Apache-2.0
"""The map of XLA's rewrites: what each of them is worth to a program.

found = hloenv.rewrite_map.map_program(module)
for row in found.costly(0.03):
    print(row.worth, row.pass_name, row.before, "->", row.after)
"""

from __future__ import annotations

from .accepted import AcceptedRewrite, find_rewrites
from .isolated import map_program
from .rows import ProgramMap, RewriteRow
from .settings import MapSettings

__all__ = [
    "AcceptedRewrite",
    "MapSettings",
    "ProgramMap",
    "RewriteRow",
    "find_rewrites",
    "map_program",
]
