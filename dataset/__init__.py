# SPDX-License-Identifier: Apache-2.0
"""Builds the dataset: real modules out of public JAX projects, reproducibly."""
