#!/usr/bin/env bash
# Runs PROGRAM, and expects it to die reporting REPORT.
set -euo pipefail
program=$1 report=$2

# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
run=()
[[ $report != ThreadSanitizer* ]] || ! setarch --addr-no-randomize true 2>/dev/null || run=(setarch --addr-no-randomize)
status=0
output=$("${run[@]}" "$program" 2>&1) || status=$?
if [ "$status" -eq 0 ] || [[ $output != *"$report"* ]]; then
  printf '%s\n' "$output"
  echo "$program: expected a failure that reports '$report', got exit status $status" >&2
  exit 1
fi
echo "$program: reported '$report'"
