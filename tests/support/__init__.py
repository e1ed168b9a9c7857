# SPDX-License-Identifier: Apache-2.0
"""What several tests share: random modules, invariants, child processes."""
