# SPDX-License-Identifier: Apache-2.0
"""Random modules, passes and decisions against the laws of rewriting.

`hloenv fuzz` on the command line; the pieces:

* `generate`: seeded random modules;
* `laws`, `values`, `matrix`: the checks of one capture;
* `episode`: a random episode, checked step by step;
* `reduce`: the smallest module and decisions that still break a law;
* `campaign`: many episodes in child processes, with limits, and what they found.
"""
