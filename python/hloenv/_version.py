# SPDX-License-Identifier: Apache-2.0
"""The version, which the build reads from here."""

__version__ = "0.1.0"
