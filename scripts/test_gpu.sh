#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that need XLA's GPU compiler, for which no GPU is needed: it comes
# with the CUDA wheel of TensorFlow, which gets an environment of its own (700 MB).
# The extension is the one that was built with the CPU wheel. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
main=${HLOENV_VENV:-.venv}
venv=${HLOENV_CUDA_VENV:-.venv-cuda}
if [[ ! -f $venv/.hloenv-packages ]]; then
  echo "== making $venv with the CUDA wheel of TensorFlow"
  "$main/bin/python" -m venv --clear "$venv"
  # TensorFlow's Python is not used, so neither is what it needs.
  "$venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps \
    tensorflow==2.21.0
  "$venv/bin/python" -m pip install --disable-pip-version-check -q \
    numpy ml_dtypes pytest==9.2.0 pytest-timeout==2.4.0
  touch "$venv/.hloenv-packages"
fi
package=build/gpu-package
rm -rf "$package"
mkdir -p "$package"
cp -r python/hloenv "$package/"
site=$("$main/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
cp "$site"/hloenv/_core*.so "$package/hloenv/"
if (($# == 0)); then set -- tests/test_intercept_gpu.py tests/test_intercept.py; fi
echo "== pytest $* (GPU compiler)"
PYTHONPATH=$package exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
