#!/usr/bin/env bash
# Runs what is too long for the gate (deploy/test.sh), for a night: each stage goes on when another fails, and a report
# says what passed, how long it took and the seeds of what failed. As root, on a machine with FUSE. Exit status 1 when a
# stage failed.
#
# usage: deploy/campaigns.sh [STAGE...]     (default: all of them, in this order)
#
#   random      every test, also those labelled `nightly`, with drawn seeds, and over io_uring where the kernel has it
#   crashes     2,000 kills, faults and power cuts at places that are drawn
#   sanitizers  unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, also those labelled `nightly`
#   days        days of work over 20,000 files
#   fuzz        a million inputs for each fuzz target
#   tsan        deploy/tsan.sh
#   mutants     each broken promise and each lost sync is noticed by a test
#   ceph        repositories in a bucket of Ceph's RADOS gateway (installs it)
#   typescript  the client generated for TypeScript (needs npm)
#   package     deploy/try-package.sh
#   containers  deploy/try-containers.sh
#   flakes      each test of the gate 30 times
#   busy        the same beside two busy loops
#
# The report is build/campaigns/report.md, with a log of each stage beside it. A stage that is run again on the same
# commit replaces its row, so that several nights can fill one report.
set -uo pipefail
cd "$(dirname "$0")/.."
export REQUIRE_FUSE=1
all=(random crashes sanitizers days fuzz tsan mutants ceph typescript package containers flakes busy)
stages=("$@")
[ $# -gt 0 ] || stages=("${all[@]}")
for stage in "${stages[@]}"; do
  [[ " ${all[*]} " == *" $stage "* ]] && continue
  echo "deploy/campaigns.sh: unknown stage '$stage'; the stages are ${all[*]}" >&2
  exit 2
done

results=build/campaigns
mkdir -p "$results"
tools=(--escrow build/dev/daemon/escrow --tool build/dev/tests/crash/syscall_faults)
uring=/sys/module/fuse/parameters/enable_uring

before=$(cat "$uring" 2>/dev/null)
loops=()
# Undoes what a stage changed for the whole machine; runs also when the script is interrupted.
restore() {
  [ -z "$before" ] || [ ! -w "$uring" ] || echo "$before" >"$uring"
  [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
  loops=()
}
trap restore EXIT
trap 'exit 130' INT TERM

# every_test BUILD-DIRECTORY CTEST-OPTION...
every_test() {
  deploy/scratch-disk.sh ctest --test-dir "$1" --output-on-failure --no-tests=error --timeout 1200 "${@:2}"
}

random() {
  local status=0
  [ ! -w "$uring" ] || echo Y >"$uring"
  build/dev/daemon/escrow doctor
  ESCROW_TEST_SEED=random every_test build/dev --parallel "$(($(nproc) + 2))" || status=1
  restore
  return $status
}
crashes() {
  local status=0
  local -x ESCROW_TEST_SEED=random
  tests/crash/campaign.py "${tools[@]:0:2}" --kills 2000 || status=1
  tests/crash/faults.py "${tools[@]}" --sample 12 || status=1
  tests/crash/service_faults.py "${tools[@]}" --escrowd build/dev/daemon/escrowd --sample 4 || status=1
  tests/crash/fsync_faults.py "${tools[@]}" || status=1
  tests/crash/power_cuts.py "${tools[@]:0:2}" --recorder build/dev/tests/crash/disk_recorder --cuts 200 || status=1
  return $status
}
sanitizers() {
  local -x ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 ESCROW_TEST_SEED=random
  local -x LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
  cmake --preset asan -Wno-dev -DESCROW_UNIT_PROCESSES=0 >/dev/null &&
    cmake --build --preset asan --parallel "$(nproc)" --target unit_tests &&
    every_test build/asan --label-regex '^unit$' --parallel "$(($(nproc) + 2))"
}
days() { tests/work/days_test.py --escrow build/dev/daemon/escrow; }
fuzz() {
  local status=0 target
  for target in requests policies archives; do
    mkdir -p "$results/found-$target"
    build/dev/tests/fuzz/fuzz_$target -runs=1000000 -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 \
      -artifact_prefix="$results/" "$results/found-$target" "tests/fuzz/seeds/$target" || status=1
  done
  return $status
}
tsan() { deploy/tsan.sh; }
mutants() { tests/crash/mutants.py && tests/crash/sync_mutants.py; }
ceph() {
  apt-get install --quiet=2 --yes --no-install-recommends ceph-mon ceph-osd radosgw &&
    tests/bucket/run.py --escrow build/dev/daemon/escrow
}
typescript() { tests/typescript/run.py --escrow build/dev/daemon/escrow --escrowd build/dev/daemon/escrowd; }
package() { deploy/try-package.sh; }
containers() { deploy/try-containers.sh; }
flakes() { every_test build/dev --label-exclude nightly --parallel "$(($(nproc) + 2))" --repeat until-fail:30; }
busy() {
  local status=0
  for _ in 1 2; do
    (while :; do :; done) &
    loops+=($!)
  done
  flakes || status=1
  restore
  return $status
}

deploy/setup.sh && cmake --preset dev -Wno-dev -DESCROW_UNIT_TESTS=ON -DESCROW_CASES_PER_PROCESS=1 >/dev/null &&
  cmake --build --preset dev --parallel "$(nproc)" --target all nightly || exit 1

title="# Campaigns on $(git rev-parse --short HEAD), $(nproc) processors, Linux $(uname -r)"
report=$results/report.md
[ "$(head -n 1 "$report" 2>/dev/null)" = "$title" ] ||
  printf '%s\n\n| stage | result | minutes | seeds |\n|---|---|---|---|\n' "$title" >"$report"
failed=0
for stage in "${stages[@]}"; do
  printf '\n== %s\n' "$stage"
  begin=$SECONDS outcome=passed
  $stage >"$results/$stage.log" 2>&1 || { outcome=FAILED failed=1; tail -n 40 "$results/$stage.log"; }
  # ctest shows what a test printed, and so its seed, only where the test failed.
  seeds=$(grep --only-matching 'ESCROW_TEST_SEED=[0-9]*' "$results/$stage.log" | cut -d= -f2 | sort -un | xargs)
  sed -i "/^| $stage |/d" "$report"
  echo "| $stage | $outcome | $(((SECONDS - begin + 59) / 60)) | $seeds |" | tee -a "$report"
done
exit $failed
