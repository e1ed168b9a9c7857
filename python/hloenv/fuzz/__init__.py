# SPDX-License-Identifier: Apache-2.0
"""Checks the invariants of rewriting on random modules, passes and decisions.

Run by `hloenv fuzz` and, for the matrix, by
`scripts/reports/run_invariants.py`. Modules:

* `generator`: seeded random modules;
* `invariants`, `values`, `compiled`: the checks of one capture;
* `examples`, `expected`, `comparison`: inputs with finite outputs, the outputs of the
  original module, and tolerances derived from rounding;
* `matrix`: the checks of one module for many passes, run in child processes;
* `subjects`, `cells`, `sweep`, `results`, `summary`: the modules of the matrix, the
  checks wanted on each, the runner, the stored results, and the report;
* `episode`: a random episode, checked step by step;
* `reducer`: the smallest module and decisions that still break an invariant;
* `campaign`: many random episodes in child processes, with limits.
"""
