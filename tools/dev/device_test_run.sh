#!/usr/bin/env bash
# Runs the CUDA tests of this folder: `run [--sanitize] [FILTER]`. Needs an NVIDIA driver, and cuBLAS and cuDNN as torch
# brings them.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
sanitize=
[ "${1:-}" = --sanitize ] && sanitize=1 && shift
with() { LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LOCKSTEP_TEST_BACKEND=cuda "$@"; }
status=0
date -u +%Y-%m-%d
with bin/lockstep doctor | grep -i cuda
with bin/test_backend --gtest_brief=1 --gtest_filter="${1:-*}-*ForcedLevel*" || status=1
for dtype in f32 bf16; do
  with bin/bench_cuda_steps taps model 64 3 "$dtype" || status=1
done
if [ -n "$sanitize" ]; then
  for tool in memcheck racecheck; do
    with compute-sanitizer --tool "$tool" --error-exitcode 1 bin/test_backend --gtest_brief=1 \
      --gtest_filter="${1:-*Norm*:*Linear*:*Attention*:*Elementwise*}-*ForcedLevel*:*BeyondTheCaches*" || status=1
  done
fi
exit $status
