#!/usr/bin/env bash
# Builds Escrow and its tests with ThreadSanitizer (preset tsan) and runs those that use threads. Too long for
# deploy/test.sh: run it after a change of locks or threads. Fails on any report, also one of a child process.
#
# usage: deploy/tsan.sh [FOLDER...]     (default: session storage fuse api daemon model mount escrowd)
#
# Of escrowd's tests those labelled not_under_tsan are left out: none of its processes has only one thread there, so
# that none can make the user namespace of a confined run, and memory is no measure.
set -euo pipefail
cd "$(dirname "$0")/.."
folders=("$@")
[ $# -gt 0 ] || folders=(session storage fuse api daemon model mount escrowd)

deploy/setup.sh
cmake --preset tsan -Wno-dev >/dev/null
targets=(canary_thread)
for folder in "${folders[@]}"; do targets+=("tests/$folder/all"); done
[[ " ${folders[*]} " != *" escrowd "* ]] || targets+=(escrow escrowd)
cmake --build --preset tsan --parallel "$(nproc)" --target "${targets[@]}"

ctest --test-dir build/tsan --tests-regex '^Canary\.' --output-on-failure --no-tests=error

# Where children write too, some of them as other users: an exit status alone would not say what a child met.
reports=$(mktemp -d "${TMPDIR:-/tmp}/escrow-tsan.XXXXXX")
trap 'rm -rf "$reports"' EXIT
chmod 1777 "$reports"
export REQUIRE_FUSE=${REQUIRE_FUSE:-1}
export TSAN_OPTIONS="second_deadlock_stack=1 log_path=$reports/report suppressions=$PWD/tests/tsan.supp"

# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
run=()
setarch --addr-no-randomize true 2>/dev/null && run=(setarch --addr-no-randomize)
status=0
for folder in "${folders[@]}"; do
  printf '\n== tests/%s under ThreadSanitizer\n' "$folder"
  "${run[@]}" ctest --test-dir "build/tsan/tests/$folder" --output-on-failure --no-tests=error --timeout 600 --quiet \
    --label-exclude not_under_tsan --output-log "$reports/ctest.log" || { status=1; cat "$reports/ctest.log"; }
  tail -n 4 "$reports/ctest.log"
done
for report in "$reports"/report.*; do
  [ -e "$report" ] || continue
  status=1
  cat "$report"
done
exit "$status"
