#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up hloenv and builds the documentation site into build/site; warnings are errors.
# Arguments go to `mkdocs build`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
echo "== mkdocs build"
# Without --quiet, which also disables --strict. The theme advertises its successor.
NO_MKDOCS_2_WARNING=1 exec "${HLOENV_VENV:-.venv}/bin/mkdocs" build --strict --clean "$@"
