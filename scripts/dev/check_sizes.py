# SPDX-License-Identifier: Apache-2.0
"""Limits the length of source files.

Warns above 400 lines, fails above 600; in tests/ above 600 and 900. Checks files that
git tracks or does not ignore.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMITS = (400, 600)
TEST_LIMITS = (600, 900)
SUFFIXES = {".cc", ".h", ".py", ".sh", ".cmake"}
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns 1 if a file is too long."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    too_long = 0
    for name in sorted(filter(None, listing.split("\0"))):
        path = ROOT / name
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        num_lines = len(path.read_text(encoding="utf-8").splitlines())
        warn, limit = TEST_LIMITS if name.startswith("tests/") else LIMITS
        if num_lines > limit:
            print(f"error: {name} has {num_lines} lines, the limit is {limit}")
            too_long += 1
        elif num_lines > warn:
            print(f"warning: {name} has {num_lines} lines, more than {warn}")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
