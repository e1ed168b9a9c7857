# SPDX-License-Identifier: Apache-2.0
"""The leaderboard: speed-ups of policies and searches over XLA's default.

    hloenv bench --quick

`methods` defines the methods, `play` runs them on one module in a child process,
`runner` runs all modules and stores the rows, `report` and `plots` present them.
"""
