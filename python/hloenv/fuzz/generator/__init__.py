# SPDX-License-Identifier: Apache-2.0
"""Random modules of HLO."""
