#!/usr/bin/env bash
# Builds Escrow and its tests with ThreadSanitizer (preset tsan) and runs those that use threads. Too long for
# deploy/test.sh: run it after a change of locks or threads. Fails on any report, also one of a child process.
#
# usage: deploy/tsan.sh [FOLDER...]     (default: session storage fuse api daemon model mount escrowd)
#
# Left out are those that cannot pass there: labelled not_under_tsan, or named in tests/not_under_tsan.txt. No process
# has only one thread there, so that none can make the user namespace of a confined run, and memory is no measure.
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

# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
run=()
setarch --addr-no-randomize true 2>/dev/null && run=(setarch --addr-no-randomize)
status=0
mapfile -t left_out < <(grep --invert-match '^#' tests/not_under_tsan.txt)
if [ $# -eq 0 ]; then
  known=$(ctest --test-dir build/tsan --show-only)
  for name in "${left_out[@]}"; do
    grep --quiet ": $name\$" <<<"$known" ||
      { echo "deploy/tsan.sh: tests/not_under_tsan.txt names $name, which is no test" >&2; status=1; }
  done
fi
left_out="^($(IFS='|'; echo "${left_out[*]//./\\.}"))\$"
# run_tests FOLDER TSAN-OPTIONS CTEST-OPTION...
run_tests() {
  TSAN_OPTIONS="second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp $2" "${run[@]}" ctest \
    --test-dir "build/tsan/tests/$1" --parallel "$(nproc)" --output-on-failure --no-tests=ignore --timeout 600 --quiet \
    --output-log "$reports/ctest.log" --exclude-regex "$left_out" "${@:3}" || { status=1; cat "$reports/ctest.log"; }
  # Also of a child whose end its test does not look at.
  ! grep --after-context=60 'WARNING: ThreadSanitizer' "build/tsan/tests/$1/Testing/Temporary/LastTest.log" || status=1
  tail -n 4 "$reports/ctest.log"
}
for folder in "${folders[@]}"; do
  printf '\n== tests/%s under ThreadSanitizer\n' "$folder"
  ctest --test-dir "build/tsan/tests/$folder" --show-only | grep --quiet '^Total Tests: [1-9]' ||
    { echo "deploy/tsan.sh: tests/$folder has no tests" >&2; status=1; }
  # The reports of unit tests and of their children are in ctest's log. With a log_path the sanitizer calls mkdir()
  # before it can follow calls, and some of these tests stand in front of mkdir().
  run_tests "$folder" "" --label-regex '^unit$'
  run_tests "$folder" "log_path=$reports/report" --label-exclude '^(unit|not_under_tsan)$'
done
for report in "$reports"/report.*; do
  [ -e "$report" ] || continue
  status=1
  cat "$report"
done
exit "$status"
