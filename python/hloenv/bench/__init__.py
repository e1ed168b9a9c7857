# SPDX-License-Identifier: Apache-2.0
"""Which policy, and which search, makes modules run faster: the leaderboard.

    hloenv bench --quick

`methods` says who takes part, `play` plays one module in a child process, `runner`
goes through all modules and keeps the rows, `report` and `plots` show them.
"""
