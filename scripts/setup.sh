#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes .venv, builds hloenv into it and leaves it ready to use.
#
#   bash scripts/setup.sh        what running hloenv needs
#   bash scripts/setup.sh dev    also what the tests and the linters need
#
# Skips steps that are done. Assumes Linux, Python 3.11 to 3.13 and g++; other packages
# are installed by pip, or by apt (Python's headers, venv). Variables:
#   PYTHON            the interpreter to start from (default: the first that fits)
#   HLOENV_VENV       path of the environment (default: .venv)
#   HLOENV_WERROR=ON  warnings in our own C++ are errors, as in CI
#   HLOENV_UNITY=OFF  each C++ file is compiled alone: a change costs less, the first
#                     build three times as much
#   CMAKE_BUILD_PARALLEL_LEVEL  compilers at a time (default: what memory allows)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

level=${1:-run}
if [[ $level != run && $level != dev ]]; then
  echo "usage: bash scripts/setup.sh [run|dev]" >&2
  exit 2
fi
venv=${HLOENV_VENV:-.venv}
werror=${HLOENV_WERROR:-OFF}
unity=${HLOENV_UNITY:-ON}

say() { printf '== %s\n' "$*"; }
die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# Installs system packages, as root or through sudo.
apt_install() {
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "these system packages are missing, and there is no sudo: $*"
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null ||
    die "install these with your system's package manager, then run this script again: $*"
  say "apt-get install $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

is_supported_python() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
    2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
    if command -v "$candidate" >/dev/null && is_supported_python "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 to 3.13 found; name one: PYTHON=/path/to/python bash $0"
}

# Runs a command with its output in a log; shows lines of progress, and the end of the
# log if the command fails.
logged() {
  local log=$1 pattern=$2
  shift 2
  if ! "$@" 2>&1 | tee "$log" |
    sed -u -n -E "/$pattern/ s/^(.{0,100}).*/\\1/p"; then
    tail -n 60 "$log" >&2
    die "failed: $*; the log is in $log"
  fi
}

digest() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

# --- the environment -----------------------------------------------------------
if [[ ! -x $venv/bin/python ]]; then
  python=$(find_python)
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  missing=()
  command -v g++ >/dev/null || missing+=(g++)
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    missing+=("python$version-venv")
  "$python" - <<'END' 2>/dev/null || missing+=("python$version-dev")
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
END
  if ((${#missing[@]})); then apt_install "${missing[@]}"; fi
  say "making $venv with Python $version ($python)"
  "$python" -m venv --clear "$venv"
fi
bin=$PWD/$venv/bin
[[ $venv == /* ]] && bin=$venv/bin
is_supported_python "$bin/python" ||
  die "$venv has a Python that hloenv does not support; remove it and run this script again"
# cmake and ninja come from pip, into the environment.
export PATH="$bin:$PATH"
mkdir -p build

# --- packages ------------------------------------------------------------------
requirements=scripts/requirements-$level.txt
stamp=$venv/.hloenv-packages-$level
wanted=$(digest scripts/requirements-*.txt)
if [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
  say "installing the packages of $requirements"
  logged build/pip.log '^(Collecting|  Downloading|Installing|ERROR)' \
    "$bin/python" -m pip install --disable-pip-version-check --no-compile \
    -r "$requirements"
  # On all cores, which pip does not use, and without what is never imported: of
  # TensorFlow, hloenv uses the libraries only.
  "$bin/python" -W ignore -m compileall -q -j 0 -x 'site-packages/((tensorflow|keras)/|.*/tests?/)' \
    "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    >build/compileall.log 2>&1 || true  # files of other versions of Python
  echo "$wanted" >"$stamp"
fi

# --- hloenv itself -------------------------------------------------------------
# The Python sources are used in place; only C++ is built.
stamp=$venv/.hloenv-build
wanted=$werror-$unity-$(find CMakeLists.txt pyproject.toml csrc -type f -print0 |
  sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
if [[ $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
  if [[ -z ${CMAKE_BUILD_PARALLEL_LEVEL:-} ]]; then
    # A file that includes XLA's headers takes up to 2 GB to compile.
    by_memory=$(awk '/^MemAvailable:/ {print int($2 / 2097152)}' /proc/meminfo)
    jobs=$(nproc)
    if ((by_memory < jobs)); then jobs=$((by_memory > 1 ? by_memory : 1)); fi
    export CMAKE_BUILD_PARALLEL_LEVEL=$jobs
  fi
  rm -f "$stamp"  # an interrupted build is not finished
  say "building hloenv, $CMAKE_BUILD_PARALLEL_LEVEL file(s) at a time" \
    "(some minutes the first time)"
  logged build/build.log '^ *\[[0-9]+\/[0-9]+\]|error:|Error' \
    "$bin/python" -m pip install --disable-pip-version-check -v \
    --no-build-isolation --no-deps --config-settings=cmake.define.HLOENV_WERROR="$werror" \
    --config-settings=cmake.define.HLOENV_UNITY="$unity" \
    --editable .
  echo "$wanted" >"$stamp"
fi
say "ready; puts hloenv on PATH: source $venv/bin/activate"
