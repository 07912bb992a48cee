#!/usr/bin/env bash
# Builds the test programs whose code runs in threads with ThreadSanitizer, and runs them.
# Called by `./dev tsan [PROGRAM...]`, which has installed clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
[ $# -gt 0 ] || set -- test_tensor test_capture test_measure test_diagnose test_compare test_debugger test_service test_mcp test_http test_rest test_backend
ninja -C build-tsan -j "$JOBS" "$@" >&2

# The OpenMP runtime is not compiled for ThreadSanitizer: what it does to its own memory reads as races. It tells when
# threads start, meet and end through libarcher, which it loads by itself, so that our code between those points is
# judged rightly and only what happens inside the runtime has to be left out.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1${TSAN_OPTIONS:+ $TSAN_OPTIONS}"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}   # races need threads, however few cores there are
# Not the kernels at every level of the processor again: the levels differ in instructions, not in threads.
for program in "$@"; do "build-tsan/bin/$program" --gtest_brief=1 --gtest_filter='-*ForcedLevel*'; done
