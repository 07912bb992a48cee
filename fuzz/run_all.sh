#!/bin/sh
# Fuzzes every parser, one after the other: fuzz/run_all.sh SECONDS [TARGET...]. Needs `cmake --preset fuzz` built.
# New inputs go to build-fuzz/corpus/<target>; anything a target dies of stays in build-fuzz/findings/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
secs=$1
shift
[ $# -gt 0 ] || set -- $(ls "$root/fuzz/corpus")
mkdir -p "$root/build-fuzz/findings"
for target in "$@"; do
  work="$root/build-fuzz/corpus/$target"
  mkdir -p "$work"
  start=$(date +%s)
  status=0
  log="$root/build-fuzz/findings/$target.log"
  # 9 KB is enough for every structure of the formats; longer inputs only make each run slower.
  nice -n 19 bash -c 'TIMEFORMAT="cpu: %U"; time "$@"' time "$root/build-fuzz/bin/fuzz_$target" -max_total_time="$secs" -max_len=9000 -timeout="${LOCKSTEP_FUZZ_TIMEOUT:-20}" -rss_limit_mb=2500 \
    -print_final_stats=1 -artifact_prefix="$root/build-fuzz/findings/$target-" \
    "$work" "$root/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  cpu=$(sed -n 's/^cpu: *//p' "$log")
  echo "$target: status $status, $(($(date +%s) - start)) s (${cpu:-?} s of CPU), ${runs:-?} runs"
done
