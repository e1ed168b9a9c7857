# SPDX-License-Identifier: Apache-2.0
"""Keeps source files short enough to read in one sitting.

Warns above 400 lines, fails above 600. Looks at the files that git tracks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WARN_LINES = 400
MAX_LINES = 600
SUFFIXES = {".cc", ".h", ".py", ".sh", ".cmake"}
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Returns 1 when a file is too long."""
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
        if num_lines > MAX_LINES:
            print(f"error: {name} has {num_lines} lines, the limit is {MAX_LINES}")
            too_long += 1
        elif num_lines > WARN_LINES:
            print(f"warning: {name} has {num_lines} lines, more than {WARN_LINES}")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
