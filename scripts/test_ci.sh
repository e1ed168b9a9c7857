#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What CI runs beside the default set of tests, in a time box: random episodes with a
# seed of the day, the tests marked `ci`, and, where pip can download packages, the
# tests marked `network`, among them a rebuild of one source of the dataset.
#
# HLOENV_CI_SEED     seed of the random episodes (default: the date)
# HLOENV_CI_SECONDS  limit of the whole (default 900)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
seed=${HLOENV_CI_SEED:-$(date -u +%Y%m%d)}
limit=${HLOENV_CI_SECONDS:-900}
fuzz_seconds=$((limit / 15))
failed=()

# Runs a command with what is left of the time.
boxed() {
  local name=$1 left=$((limit - SECONDS)) code=0
  shift
  echo "== $name (at most $((left > 0 ? left : 0)) s)"
  if ((left <= 0)); then
    failed+=("$name: no time left of $limit s")
    return
  fi
  timeout --kill-after=10 "$left" "$@" || code=$?
  case $code in
    0) ;;
    124 | 137) failed+=("$name: not done in $limit s") ;;
    *) failed+=("$name: exit code $code") ;;
  esac
}

boxed "random episodes, seed $seed" "$bin/hloenv" fuzz --seed "$seed" \
  --seconds "$fuzz_seconds" --jobs 2 --output build/fuzz-failures
marked=ci
if bash scripts/has_registry.sh; then
  marked="ci or network"
else
  echo "no package registry in reach: the tests marked network are left out"
fi
boxed "pytest -m '$marked'" \
  "$bin/python" -m pytest --require-packages -m "$marked" --durations=5

if ((${#failed[@]})); then
  printf 'test_ci: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
