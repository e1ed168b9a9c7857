#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests of CI besides the default set, within a time limit: random episodes with a daily
# seed, tests marked `ci`, and, if pip can download packages, tests marked `network`,
# which include a rebuild of one source of the dataset.
#
# HLOENV_CI_SEED     seed of the random episodes (default: the date)
# HLOENV_CI_SECONDS  total time limit (default 900)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
seed=${HLOENV_CI_SEED:-$(date -u +%Y%m%d)}
limit=${HLOENV_CI_SECONDS:-900}
fuzz_seconds=$((limit / 15))
failed=()

# Runs a command with the remaining time.
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
if bash scripts/dev/has_registry.sh; then
  marked="ci or network"
else
  echo "no package registry is reachable: skipping the tests marked network"
fi
# Only the files that have such tests are collected.
mapfile -t files < <(grep -rlE 'mark\.(ci|network)\b' tests --include='test_*.py' | sort)
boxed "pytest -m '$marked'" "$bin/python" -m pytest --require-packages -n logical \
  -m "$marked" --durations=5 "${files[@]}"

if ((${#failed[@]})); then
  printf 'test_ci: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
