#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks of tests/speed on one core and writes their table into
# docs/results/benchmarks.md. Needs an idle machine. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
# One core, as for a search with a worker on each core.
taskset -c 0 "$bin/python" -m pytest tests/speed -m bench --timeout 0 \
  --benchmark-json build/bench.json "$@"
"$bin/python" scripts/reports/bench_table.py build/bench.json
