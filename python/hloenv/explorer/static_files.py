# SPDX-License-Identifier: Apache-2.0
"""The built page, as files of the package: made by `npm run build` in `explorer/`."""

from __future__ import annotations

from functools import cache
from importlib import resources

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "explorer.js": "text/javascript; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@cache
def read_static(name: str) -> tuple[str, bytes] | None:
    """Type and content of a file of the page; None if it is not one."""
    kind = _TYPES.get(name)
    if kind is None:
        return None
    folder = resources.files(__package__) / "static"
    return kind, (folder / name).read_bytes()
