#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws the figure of the README: the alternatives of docs/images/example.hlo. Needs
# Graphviz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh run
"${HLOENV_VENV:-.venv}/bin/hloenv" graph docs/images/example.hlo \
  --pass algsimp --pass cse -o docs/images/alternatives.svg
