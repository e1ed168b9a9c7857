#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks of tests/speed on one core and writes their table into
# docs/results/benchmarks.md. Needs a machine that does nothing else. Arguments go to
# pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
# One core, as a search that runs a worker on each would have it.
taskset -c 0 "$bin/python" -m pytest tests/speed -m bench --timeout 0 \
  --benchmark-json build/bench.json "$@"
"$bin/python" scripts/bench_table.py build/bench.json
