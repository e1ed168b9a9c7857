#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up hloenv and runs the tests; arguments go to pytest.
#
#   bash scripts/test.sh                      the default set
#   bash scripts/test.sh tests/jax              one folder
#   bash scripts/test.sh -m slow              tests outside the default set
#   bash scripts/test.sh -n 0 --pdb           in one process, for a debugger
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
echo "== pytest $*"
# All requirements were installed above.
exec "${HLOENV_VENV:-.venv}/bin/python" -m pytest --require-packages \
  -n logical --dist worksteal "$@"
