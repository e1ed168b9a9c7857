#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that need XLA's GPU compiler, for which no GPU is needed: it comes
# with the CUDA wheel of TensorFlow, which gets an environment of its own (700 MB).
# The extension is the one that was built with the CPU wheel. Arguments go to pytest.
# Exit code 75: the wheel is not here, and no registry that it could come from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dev
main=${HLOENV_VENV:-.venv}
venv=${HLOENV_CUDA_VENV:-.venv-cuda}

# The version of a package of the main environment, as `name==version`.
pinned() { grep -h "^$1==" scripts/requirements-*.txt; }

make_environment() {
  local tensorflow
  tensorflow=$(pinned tensorflow-cpu)
  # TensorFlow's Python is not used, so neither is what it needs.
  "$main/bin/python" -m venv --clear "$venv" &&
    "$venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps \
      "${tensorflow/-cpu/}" &&
    "$venv/bin/python" -m pip install --disable-pip-version-check -q \
      numpy ml_dtypes "$(pinned pytest)" "$(pinned pytest-timeout)"
}

stamp=$venv/.hloenv-packages
wanted=$(pinned tensorflow-cpu && pinned pytest && pinned pytest-timeout)
if [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
  echo "== making $venv with the CUDA wheel of TensorFlow"
  if ! make_environment; then
    if bash scripts/has_registry.sh; then
      echo "test_gpu: pip can download packages, but not install these" >&2
      exit 1
    fi
    echo "test_gpu: no CUDA wheel of TensorFlow here, and no package registry" >&2
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
  echo "test_gpu: there is no GPU compiler in this wheel of TensorFlow" >&2
  exit 1
fi
if (($# == 0)); then set -- tests/rewrite/test_intercept_gpu.py tests/rewrite/test_intercept.py; fi
echo "== pytest $* (GPU compiler)"
PYTHONPATH=$package exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
