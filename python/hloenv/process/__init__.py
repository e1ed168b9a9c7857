# SPDX-License-Identifier: Apache-2.0
"""Child processes, their limits, and the cores they run on."""
