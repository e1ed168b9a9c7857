# SPDX-License-Identifier: Apache-2.0
"""`python -m hloenv.tune SCRIPT ...`: runs a script with what was tuned for it."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import ScriptError
from .api import using
from .recording import run_script


def main() -> int:
    """Runs the script of the command line."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.stderr.write("usage: python -m hloenv.tune SCRIPT [ARGUMENTS]\n")
        return 2
    try:
        with using():
            run_script(Path(sys.argv[1]), sys.argv[2:])
    except ScriptError as error:  # the script's own, with its exit code
        raise error.__cause__ or error from None
    except FileNotFoundError as error:
        sys.stderr.write(f"hloenv.tune: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
