#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks of tests/bench on one core and writes their table into the
# README. Needs a machine that does nothing else. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
# One core, as a search that runs a worker on each would have it.
taskset -c 0 "$bin/python" -m pytest tests/bench -m bench --timeout 0 \
  --benchmark-json build/bench.json "$@"
"$bin/python" scripts/bench_table.py build/bench.json
