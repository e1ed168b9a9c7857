#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exit code 0 where pip can download from its package index, 1 where it cannot: tells a
# package that is missing or broken from an index that is out of reach. What lies in
# further indexes and in folders (--extra-index-url, --find-links) does not count, since
# they may hold some packages only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pip=("${HLOENV_VENV:-.venv}/bin/python" -m pip --disable-pip-version-check)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
index=${PIP_INDEX_URL:-$("${pip[@]}" config get global.index-url 2>/dev/null ||
  echo https://pypi.org/simple)}
# pip takes an empty variable for none.
export PIP_INDEX_URL=$index PIP_EXTRA_INDEX_URL=$index PIP_FIND_LINKS=$folder
"${pip[@]}" download -q --no-deps --no-cache-dir --retries 1 --timeout 20 \
  --dest "$folder" iniconfig >/dev/null 2>&1
