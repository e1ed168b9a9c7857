#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exits with 0 if pip can download from its package index, else with 1, to distinguish a
# missing or broken package from an unreachable index. Further indexes and folders
# (--extra-index-url, --find-links) are ignored, since they may lack packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pip=("${HLOENV_VENV:-.venv}/bin/python" -m pip --disable-pip-version-check)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
index=${PIP_INDEX_URL:-$("${pip[@]}" config get global.index-url 2>/dev/null ||
  echo https://pypi.org/simple)}
# pip treats an empty variable as unset.
export PIP_INDEX_URL=$index PIP_EXTRA_INDEX_URL=$index PIP_FIND_LINKS=$folder
"${pip[@]}" download -q --no-deps --no-cache-dir --retries 1 --timeout 20 \
  --dest "$folder" iniconfig >/dev/null 2>&1
