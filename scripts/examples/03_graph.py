# SPDX-License-Identifier: Apache-2.0
"""Sees a module and its alternatives as arrays, and decides from them.

What a learned policy would see. `hloenv.to_networkx` and `hloenv.to_pyg` turn the same
graph into theirs.
"""

from __future__ import annotations

import numpy as np

import hloenv

TEXT = """HloModule example

ENTRY main {
  x = f32[256]{0} parameter(0)
  row = f32[1,256]{1,0} reshape(x)
  flat = f32[256]{0} reshape(row)
  y = f32[256]{0} exponential(flat)
  z = f32[256]{0} exponential(flat)
  ROOT out = f32[256]{0} multiply(y, z)
}
"""


def main() -> None:
    """Prints some columns, then takes the choices that have the fewest operands."""
    env = hloenv.HloEnv(TEXT)
    alternatives = env.get_alternatives("algsimp", "cse")
    graph = alternatives.graph
    print(graph)
    for node, name in enumerate(graph.node_names):
        users = [graph.node_names[user] for user in graph.users(node)]
        print(
            f"{name:>12} {hloenv.opcodes()[graph.opcode[node]]:<12}"
            f"{graph.output_bytes[node]:>6} B  read by {users}"
        )

    decisions = np.zeros(len(alternatives), np.int64)
    for alternative in range(len(alternatives)):
        site = graph.site_offsets[alternative]
        first, last = graph.site_choice_offsets[site : site + 2]
        choices = graph.site_choice_nodes[first:last]
        print(f"alternative {alternative}: {[graph.node_names[n] for n in choices]}")
        decisions[alternative] = np.argmin(graph.operand_count[choices])
    print(f"decisions {decisions}: {env.apply_alternatives(decisions)}")


if __name__ == "__main__":
    main()
