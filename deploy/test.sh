#!/usr/bin/env bash
# Installs what is needed, builds Escrow and passes its tests: unit tests under AddressSanitizer and
# UndefinedBehaviorSanitizer, the others in the `dev` build, and those of a mount's life and I/O in both.
# deploy/campaigns.sh runs what takes longer: the tests labelled `nightly`, the fuzz targets (which read requests and
# policies under both sanitizers), ThreadSanitizer, drawn seeds.
# Set REQUIRE_FUSE=1 to make a machine without a usable /dev/fuse a failure instead of skipped tests.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }

step "Installing what is needed"
deploy/setup.sh
jobs=$(nproc)
# Python keeps the bytecode of the tests there.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$PWD/build/pycache
# tests BUILD-DIRECTORY CTEST-OPTION...: five more at a time than there are processors, as many tests wait more than
# they compute. The longest begin first, so that no processor is idle at the end; a fresh build knows no costs of its
# own.
tests() {
  local costs=$1/Testing/Temporary/CTestCostData.txt
  mkdir -p "${costs%/*}"
  [ -e "$costs" ] || cp tests/costs.txt "$costs"
  deploy/scratch-disk.sh ctest --test-dir "$1" --output-on-failure --no-tests=error --parallel "$((jobs + 5))" "${@:2}"
}

step "Building (preset dev)"
cmake --preset dev -Wno-dev -DESCROW_UNIT_TESTS=OFF -DESCROW_CASES_PER_PROCESS=8 >/dev/null
cmake --build --preset dev --parallel "$jobs"

step "Building and testing under AddressSanitizer and UndefinedBehaviorSanitizer (preset asan)"
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
cmake --preset asan -Wno-dev -DESCROW_UNIT_PROCESSES=4 >/dev/null
cmake --build --preset asan --parallel "$jobs" --target unit_tests mount_test
# sanitized WHAT CTEST-OPTION...
sanitized() {
  local what=$1 log=build/asan/tests-${1// /-}.log
  shift
  if ! tests build/asan --timeout 300 "$@" >"$log" 2>&1; then
    cat "$log"
    echo "deploy/test.sh: $what failed under the sanitizers" >&2
    exit 1
  fi
  # One test of ctest has many cases of GoogleTest.
  local cases
  cases=$(awk '/^\[  PASSED  \]/ { cases += $4 } END { print cases }' build/asan/Testing/Temporary/LastTest.log)
  echo "$what under the sanitizers: ${cases:-all} passed"
}
sanitized "canaries" --tests-regex '^Canary\.'
sanitized "unit tests" --label-regex '^unit$'
# Not the Posix suites: they fork, and go on in the child, from a process with the mount's threads. A thread that is
# just allocating then leaves the child AddressSanitizer's allocator locked (fixed in later compilers): it hangs.
sanitized "tests of a mount" --tests-regex '^(Mount\.|Every/IoMode\.|HelperProcess\.)'

# why BUILD-DIRECTORY: what the tests that failed last have said, the first and the last lines of each.
why() {
  awk -v most=15 '
    /^[0-9]+\/[0-9]+ Test: / { name = $3; lines = 0 }
    /^Output:$/ { inside = 1; next }
    /^<end of output>$/ { inside = 0 }
    inside { said[lines++] = substr($0, 1, 300) }
    /^Test Failed\.$/ {
      print "\n-- " name
      for (i = 0; i < lines; ++i) if (i < most || i >= lines - most) print "   " said[i]
    }' "$1/Testing/Temporary/LastTest.log"
}

step "What this machine allows, and so what the tests use"
build/dev/daemon/escrow doctor || true

step "Tests"
if ! tests build/dev --label-exclude nightly --timeout 600; then
  step "Why tests failed, in short; all of it is above"
  why build/dev
  exit 1
fi
