#!/usr/bin/env bash
# Fuzzes every parser, one after the other: fuzz/run_all.sh SECONDS [TARGET...]. Needs `cmake --preset fuzz` built.
# The seconds are those of a processor: where others use it too, a target runs until it has had them.
# New inputs go to build-fuzz/corpus/<target>; anything a target dies of stays in build-fuzz/findings/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
secs=$1
shift
[ $# -gt 0 ] || set -- $(ls "$root/fuzz/corpus")
mkdir -p "$root/build-fuzz/findings"
failed=0
TIMEFORMAT="cpu: %U %S"

fuzz_for() {  # fuzz_for SECONDS TARGET LOG
  # 9 KB is enough for every structure of the formats; longer inputs only make each run slower.
  { time nice -n 19 "$root/build-fuzz/bin/fuzz_$2" -max_total_time="$1" -max_len=9000 -timeout="${LOCKSTEP_FUZZ_TIMEOUT:-20}" -rss_limit_mb=2500 \
    -print_final_stats=1 -artifact_prefix="$root/build-fuzz/findings/$2-" "$root/build-fuzz/corpus/$2" "$root/fuzz/corpus/$2"; } >"$3" 2>&1
}

for target in "$@"; do
  mkdir -p "$root/build-fuzz/corpus/$target"
  start=$(date +%s) status=0 cpu=0 runs=0 log="$root/build-fuzz/findings/$target.log"
  while [ "$cpu" -lt "$secs" ] && [ "$status" = 0 ]; do
    fuzz_for $((secs - cpu)) "$target" "$log" || status=$?
    done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    runs=$((runs + ${done:-0}))
    cpu=$(awk -v before="$cpu" '/^cpu: / { print int(before + $2 + $3 + 0.5) }' "$log")
  done
  [ "$status" = 0 ] || failed=1
  echo "$target: status $status, $runs runs, $cpu s of processor time in $(($(date +%s) - start)) s"
done
exit $failed
