#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up hloenv, then optimizes a GPT-2 training step: the rewrites of passes become
# decisions, a policy decides, and the result is checked and timed against XLA's.
# Arguments go to `hloenv optimize`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh run
bin=${HLOENV_VENV:-.venv}/bin

model=build/demo/gpt2_train_step.pb
source=scripts/examples/gpt2.py
if [[ ! -f $model || $source -nt $model ]]; then
  echo "== lowering a GPT-2 training step with JAX"
  "$bin/python" "$source" "$model"
fi
if (($# == 0)); then
  set -- --pass algsimp --pass cse --policy accept-all --measure
fi
echo "== hloenv optimize $model $*"
exec "$bin/hloenv" optimize "$model" "$@"
