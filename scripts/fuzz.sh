#!/usr/bin/env bash
# fuzz.sh FOLDER SECONDS: runs each fuzzer of the folder for so long, from its corpus in tests/fuzz-corpus/NAME (a
# fuzzer NAME_fuzz). What it finds new stays in build/fuzz-corpus, what breaks it in build/fuzz-findings.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$1 seconds=$2 failed=() passed=0
mkdir -p build/fuzz-findings

for fuzzer in "$folder"/*_fuzz; do
  [ -x "$fuzzer" ] || continue
  name=$(basename "$fuzzer" _fuzz)
  corpus=build/fuzz-corpus/$name
  mkdir -p "$corpus"
  seeds=()
  [ -d "tests/fuzz-corpus/$name" ] && seeds=("tests/fuzz-corpus/$name")
  log=build/fuzz-findings/$name.log
  if "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=3000 -print_final_stats=1 \
    -artifact_prefix="build/fuzz-findings/$name-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz: $name: no finding in $runs runs"
    passed=$((passed + 1))
  else
    echo "fuzz: $name: FAILED"
    tail -n 40 "$log"
    failed+=("$name")
  fi
done
echo "fuzzers: $passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0 && passed > 0))
