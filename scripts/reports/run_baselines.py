#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The leaderboard: policies, searches and baselines over a split of the dataset.

The same as `hloenv bench`, whose arguments it takes:

    python scripts/reports/run_baselines.py --quick
    python scripts/reports/run_baselines.py --modules 200 --search -o bench
    python scripts/reports/run_baselines.py --split test --extent real \
        --threads 2 -o bench
"""

from __future__ import annotations

import sys

from hloenv.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
