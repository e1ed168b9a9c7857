#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all linters, even if one fails. Does not change files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
bin=${HLOENV_VENV:-.venv}/bin
failed=()

check() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

sources() { git ls-files -z --cached --others --exclude-standard -- "$@"; }

check "ruff check" "$bin/ruff" check --quiet .
check "ruff format" "$bin/ruff" format --quiet --check .
check "mypy" "$bin/mypy"
check "import-linter" "$bin/lint-imports" --no-cache
sources '*.cc' '*.h' >build/cpp-sources
check "clang-format" \
  xargs -0 -a build/cpp-sources "$bin/clang-format" --dry-run --Werror
check "codespell" "$bin/codespell"
check "file sizes" "$bin/python" scripts/dev/check_sizes.py
check "stub" "$bin/python" scripts/dev/make_stub.py --check

if ((${#failed[@]})); then
  printf 'lint: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
