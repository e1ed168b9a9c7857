#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of XLA's GPU compiler, without a GPU. The compiler is in the CUDA wheel
# of TensorFlow, which is installed in its own environment (700 MB); the extension is
# that of the CPU wheel. Arguments go to pytest. Exit code 75: the wheel is neither
# installed nor available from a registry.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/setup.sh dev
main=${HLOENV_VENV:-.venv}
venv=${HLOENV_CUDA_VENV:-.venv-cuda}

# Prints a package of the main environment as `name==version`.
pinned() { grep -h "^$1==" scripts/requirements-*.txt; }

make_environment() {
  local tensorflow
  tensorflow=$(pinned tensorflow-cpu)
  # Without dependencies: TensorFlow's Python code is not used.
  "$main/bin/python" -m venv --clear "$venv" &&
    "$venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps \
      --no-compile "${tensorflow/-cpu/}" &&
    "$venv/bin/python" -m pip install --disable-pip-version-check -q \
      numpy ml_dtypes "$(pinned pytest)" "$(pinned pytest-timeout)"
}

stamp=$venv/.hloenv-packages
wanted=$(pinned tensorflow-cpu && pinned pytest && pinned pytest-timeout)
if [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
  echo "== making $venv with the CUDA wheel of TensorFlow"
  if ! make_environment; then
    if bash scripts/dev/has_registry.sh; then
      echo "test_gpu: pip can download packages, but not install these" >&2
      exit 1
    fi
    echo "test_gpu: no CUDA wheel of TensorFlow, and no package registry" >&2
    exit 75
  fi
  echo "$wanted" >"$stamp"
fi
package=build/gpu-package
rm -rf "$package"
mkdir -p "$package"
cp -r python/hloenv "$package/"
site=$("$main/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
cp "$site"/hloenv/_core*.so "$package/hloenv/"
if ! PYTHONPATH=$package "$venv/bin/python" -c \
  'import sys; from hloenv._native import core; sys.exit(not core.has_gpu_compiler())'
then
  echo "test_gpu: this wheel of TensorFlow has no GPU compiler" >&2
  exit 1
fi
if (($# == 0)); then set -- tests/rewrite/test_intercept_gpu.py tests/rewrite/test_intercept.py; fi
echo "== pytest $* (GPU compiler)"
PYTHONPATH=$package exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
