#!/usr/bin/env bash
# Checks a change before it is committed, in minutes: the rules for the sources, and a build and the unit tests of each
# folder that it touches. deploy/test.sh, the gate, has all tests.
#
# usage: deploy/check.sh [REVISION]     what differs from REVISION (default: HEAD), new files too
set -euo pipefail
cd "$(dirname "$0")/.."
since=${1:-HEAD}
git rev-parse --quiet --verify "$since^{commit}" >/dev/null || {
  echo "deploy/check.sh: there is no revision '$since'" >&2
  exit 2
}

folders=()
for folder in session storage fuse api daemon; do
  if [ -n "$(git diff --name-only "$since" -- "$folder" "tests/$folder")" ] ||
      [ -n "$(git ls-files --others --exclude-standard -- "$folder" "tests/$folder")" ]; then
    folders+=("$folder")
  fi
done

tests/architecture/check_sources.py
if [ ${#folders[@]} -eq 0 ]; then
  echo "No folder with unit tests is touched: only the rules for the sources were checked."
  exit
fi
echo "Touched: ${folders[*]}"
targets=()
for folder in "${folders[@]}"; do targets+=("$folder/all" "tests/$folder/all"); done
deploy/libfuse.sh
[ -e build/dev/build.ninja ] || cmake --preset dev -Wno-dev >/dev/null
# Few processes: one for each case takes longer than the cases.
cmake -DESCROW_UNIT_TESTS=ON -DESCROW_UNIT_PROCESSES=4 build/dev >/dev/null
cmake --build --preset dev --parallel "$(nproc)" --target "${targets[@]}"
for folder in "${folders[@]}"; do
  deploy/scratch-disk.sh ctest --test-dir "build/dev/tests/$folder" --label-exclude nightly --output-on-failure \
    --no-tests=error --parallel "$(($(nproc) + 3))" --timeout 300 --progress
done
