# SPDX-License-Identifier: Apache-2.0
"""Random modules, passes and decisions against the invariants of rewriting.

`hloenv fuzz` on the command line, `scripts/run_invariants.py` for the matrix; pieces:

* `generator`: seeded random modules;
* `invariants`, `values`, `compiled`: the checks of one capture;
* `examples`, `expected`, `comparison`: inputs that mean something, what a module
  computes on them, and how much of a difference rounding explains;
* `matrix`: the checks of many captures of one module, as child processes run them;
* `subjects`, `cells`, `sweep`, `results`, `summary`: which modules, what is checked on
  them, running it, keeping what was found, the page that shows it;
* `episode`: a random episode, checked step by step;
* `reducer`: the smallest module and decisions that still break an invariant;
* `campaign`: many episodes in child processes, with limits, and what they found.
"""
