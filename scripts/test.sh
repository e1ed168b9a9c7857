#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up what is missing and runs the tests; arguments go to pytest.
#
#   bash scripts/test.sh                      the default set
#   bash scripts/test.sh tests/jax              one folder
#   bash scripts/test.sh -m slow              what the default leaves out
#   bash scripts/test.sh -n 0 --pdb           in one process, as a debugger needs it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
echo "== pytest $*"
# Everything that the tests need was installed above.
exec "${HLOENV_VENV:-.venv}/bin/python" -m pytest --require-packages \
  -n logical --dist worksteal "$@"
