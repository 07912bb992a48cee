#!/usr/bin/env bash
# All checks in order, stopping at the first red. The last line is the totals: "N passed, M failed, K skipped".
# Called by `./dev test`, which has installed what is needed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
PYTHON=.venv/bin/python
LOGS=build/test-logs
MOST_SECS=${LOCKSTEP_TEST_SECS:-1200}   # for one program: a hang becomes a failure with a name
export LOCKSTEP_BIN="$PWD/build/bin/lockstep"
passed=0 failed=0 skipped=0
began=$SECONDS

heading() { printf '== %s (%d s)\n' "$1" $((SECONDS - began)); now "$1"; }
# now WORDS [LOG]: what the line that appears every minute says.
now() { [ -z "${LOCKSTEP_TEST_NOW:-}" ] || printf '%s\n%s\n' "$1" "${2:-}" >"$LOCKSTEP_TEST_NOW"; }
totals() { printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"; }
stop_if_red() {
  [ "$failed" -eq 0 ] && return
  printf '\nstopped: %s is red\n' "$1"
  totals
  exit 1
}

# check NAME COMMAND...: one check that is green when the command succeeds; its output is shown only when red.
check() {
  local name=$1 log="$LOGS/$1.log"
  shift
  now "$name" "$log"
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
  else
    tail -n 60 "$log"
    echo "RED: $name (whole output: $log)"
    failed=$((failed + 1))
  fi
}

# A build that fails counts as one failed check.
build() {  # build PRESET FOLDER TARGET...
  local preset=$1 folder=$2
  shift 2
  local log="$LOGS/build-$preset.log"
  now "building ($preset)" "$log"
  if ! { cmake --preset "$preset" && ninja -C "$folder" -j "$JOBS" "$@"; } >"$log" 2>&1; then
    grep -aE 'error|FAILED|CMake Error' "$log" | head -n 40
    echo "RED: build $preset (whole output: $log)"
    failed=$((failed + 1))
  fi
}

number_after() { sed -nE "s/^\[  $1 *\] ([0-9]+) tests?.*/\1/p" "$2" | tail -n 1; }

# Runs test programs two at a time, each with its own log, and adds up what Google Test says.
run_programs() {  # run_programs LOG_PREFIX PROGRAM...
  local prefix=$1 program name log status
  shift
  [ $# -gt 0 ] || return 0
  rm -f "$LOGS/$prefix"-*.status  # a killed program must not be judged by its last run
  now "test programs ($prefix)"
  printf '%s\0' "$@" | LOGS_OF=$LOGS/$prefix MOST_SECS=$MOST_SECS xargs -0 -P "$JOBS" -I{} bash -c \
    '. tools/dev/portable.sh; log=$LOGS_OF-$(basename "$1").log; at_most "$MOST_SECS" "$1" --gtest_brief=0 >"$log" 2>&1; echo $? >"$log.status"' bash {}
  for program in "$@"; do
    name=$(basename "$program") log="$LOGS/$prefix-$name.log"
    status=$(cat "$log.status" 2>/dev/null || echo 137)
    local good bad skip
    good=$(number_after PASSED "$log") bad=$(number_after FAILED "$log") skip=$(number_after SKIPPED "$log")
    # A program that ends badly without naming a failed test crashed or hung: that is one failure.
    if [ "$status" -ne 0 ] && [ "${bad:-0}" -eq 0 ]; then bad=1; fi
    passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${skip:-0}))
    printf '   %-24s %4d passed %3d failed %3d skipped\n' "$name" "${good:-0}" "${bad:-0}" "${skip:-0}"
    if [ "${bad:-0}" -gt 0 ]; then
      grep -aE -A12 'Failure$|ERROR: AddressSanitizer|runtime error|^\[  FAILED' "$log" | head -n 60
      echo "RED: $name, exit status $status (whole output: $log)"
    fi
  done
}

programs_in() { find "$1/bin" -maxdepth 1 -type f -perm -u+x -name "$2" 2>/dev/null | sort; }
test_targets() { ninja -C "$1" -t targets all 2>/dev/null | sed -nE 's/^((test|corpus)_[a-z0-9_]+): phony$/\1/p' | sort -u; }

run_pytest() {
  local report="$LOGS/pytest.xml" log="$LOGS/pytest.log" status=0
  now "Python tests" "$log"
  at_most "$((2 * MOST_SECS))" "$PYTHON" -m pytest tests/python -q --tb=short -p no:cacheprovider -n "$((JOBS + 1))" --dist loadfile --junitxml="$report" >"$log" 2>&1 || status=$?
  local counts
  counts=$("$PYTHON" - "$report" <<'PY' 2>/dev/null
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
total, failed, skipped = (int(suite.get(key)) for key in ("tests", "failures", "skipped"))
failed += int(suite.get("errors"))
print(total - failed - skipped, failed, skipped)
PY
  ) || counts="0 1 0"
  local good bad skip
  read -r good bad skip <<<"$counts"
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
  printf '   %-24s %4d passed %3d failed %3d skipped\n' pytest "$good" "$bad" "$skip"
  [ "$bad" -eq 0 ] || { tail -n 80 "$log"; echo "RED: pytest (whole output: $log)"; }
}

run_documents() {
  local log="$LOGS/documents.log" line good bad skip
  now "documentation tests" "$log"
  "$PYTHON" tools/dev/test_documents.py README.md CONTRIBUTING.md docs/*.md >"$log" 2>&1
  line=$(tail -n 1 "$log")
  if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]} skip=${BASH_REMATCH[3]}
  else
    good=0 bad=1 skip=0
  fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
  printf '   %-24s %4d passed %3d failed %3d skipped\n' documents "$good" "$bad" "$skip"
  [ "$bad" -eq 0 ] || { tail -n 60 "$log"; echo "RED: documents (whole output: $log)"; }
}

# LeakSanitizer needs ptrace, which some containers forbid, and is not there for a Mac; everything else of ASan works there.
asan_options() {
  local probe
  probe=$(programs_in build-asan 'test_*' | head -n 1)
  if [ -n "$probe" ] && ASAN_OPTIONS=detect_leaks=1 "$probe" --gtest_list_tests 2>&1 | grep -qE 'LeakSanitizer has encountered a fatal error|detect_leaks is not supported'; then
    echo "detect_leaks=0"
  else
    echo "detect_leaks=1"
  fi
}

mkdir -p "$LOGS"

heading formatting
check formatting tools/dev/main.sh formatting
stop_if_red formatting

heading layers
check layers "$PYTHON" tools/check_layers.py
stop_if_red layers

heading "build and unit tests"
build release build
stop_if_red "the build"
# shellcheck disable=SC2046  # their names have no blanks
run_programs unit $(programs_in build 'test_*')
stop_if_red "unit tests"

heading "kernels on MLX"
if [ -e build/bin/liblockstep_mlx.so ] || [ -e build/bin/liblockstep_mlx.dylib ]; then
  LOCKSTEP_TEST_BACKEND=mlx run_programs mlx build/bin/test_backend
else
  sed -n 's/^-- skipped: the MLX part/   skipped: the MLX part/p' "$LOGS/build-release.log"
fi
stop_if_red "kernels on MLX"

heading "the same under AddressSanitizer and UndefinedBehaviorSanitizer"
cmake --preset asan >"$LOGS/configure-asan.log" 2>&1
# shellcheck disable=SC2046
build asan build-asan $(test_targets build-asan)
stop_if_red "the sanitizer build"
ASAN_OPTIONS=$(asan_options)
export ASAN_OPTIONS UBSAN_OPTIONS=print_stacktrace=1
# shellcheck disable=SC2046
run_programs asan $(programs_in build-asan 'test_*')
stop_if_red "unit tests under sanitizers"

heading "fuzz corpora, sanitized"
for program in $(programs_in build-asan 'corpus_*'); do
  name=$(basename "$program")
  check "$name" at_most "$MOST_SECS" "$program" "fuzz/corpus/${name#corpus_}"
done
stop_if_red "fuzz corpora"
unset ASAN_OPTIONS UBSAN_OPTIONS

heading "Python tests"
run_pytest
stop_if_red "Python tests"

heading "documentation tests"
check reference-is-fresh tools/dev/docs.sh --check
run_documents
stop_if_red documents

heading done
totals
