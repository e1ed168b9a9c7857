# SPDX-License-Identifier: Apache-2.0
"""The kinds of `hloenv train`, one file each.

A file has `SUMMARY` (a line of the list of kinds), `DESCRIPTION`, `EXAMPLES`,
`add_parser` for its arguments, and `run`.
"""

from __future__ import annotations

# The file of "pass-order" is pass_order.py.
KINDS = ("cost-model", "pass-order", "rewrite", "substitution")
