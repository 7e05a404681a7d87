#!/usr/bin/env bash
# Builds TARGET in a fresh build directory of PRESET, runs it, and expects it to die reporting REPORT.
set -euo pipefail
source_directory=$1 preset=$2 target=$3 report=$4

build=$(mktemp -d "${TMPDIR:-/tmp}/escrow-canary.XXXXXX")
trap 'rm -rf "$build"' EXIT
cmake -S "$source_directory" --preset "$preset" -B "$build" -Wno-dev >/dev/null
cmake --build "$build" --target "$target" >/dev/null

# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
run=()
[ "$preset" = tsan ] && setarch --addr-no-randomize true 2>/dev/null && run=(setarch --addr-no-randomize)
status=0
output=$("${run[@]}" "$build/tests/architecture/$target" 2>&1) || status=$?
if [ "$status" -eq 0 ] || [[ $output != *"$report"* ]]; then
  printf '%s\n' "$output"
  echo "$target in preset $preset: expected a failure that reports '$report', got exit status $status" >&2
  exit 1
fi
echo "$target in preset $preset: reported '$report'"
