# SPDX-License-Identifier: Apache-2.0
"""Builds the dataset of real modules from public JAX projects, reproducibly."""
