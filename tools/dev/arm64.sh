#!/usr/bin/env bash
# Compiles every layer below the commands for 64-bit ARM and runs test programs of it under qemu.
# Called by `./dev arm64 [PROGRAM...]`, which has installed the compiler and qemu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
ROOT=$PWD/build-arm64/sysroot

# The libraries' packages for ARM, unpacked and not installed: this system stays as it is, and no root is needed. The C
# and C++ libraries come with the compiler.
make_sysroot() {
  local state=$PWD/build-arm64/apt packages archive
  packages=$(grep -E '^(lib|zlib|nlohmann).*-dev$' tools/dev/packages.txt | grep -v dnnl)  # our own kernels do without it there
  [ "$packages" = "$(cat "$ROOT/packages" 2>/dev/null)" ] && return
  rm -rf "$ROOT" "$state"
  mkdir -p "$ROOT" "$state/lists/partial" "$state/archives/partial"
  touch "$state/status"
  cat >"$state/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
CONF
  APT_CONFIG="$state/apt.conf" apt-get update -q >&2
  # shellcheck disable=SC2086  # a list of names
  APT_CONFIG="$state/apt.conf" apt-get install -q -y --download-only $packages >&2
  for archive in "$state"/archives/*.deb; do
    case "$(basename "$archive")" in
      libc6* | libc-* | gcc-* | libgcc* | libstdc++* | linux-libc-dev* | libcrypt*) ;;
      *) dpkg-deb -x "$archive" "$ROOT" ;;
    esac
  done
  [ ! -d "$ROOT/lib" ] || cp -a "$ROOT/lib/." "$ROOT/usr/lib/"  # where /lib is /usr/lib, packages may use either
  rm -rf "$state"
  echo "$packages" >"$ROOT/packages"
}

make_sysroot
cmake --preset arm64 >build-arm64/configure.log || { cat build-arm64/configure.log >&2; exit 1; }
[ $# -gt 0 ] || set -- test_tensor test_io test_measure test_diagnose test_compare test_backend test_pipeline lockstep
ninja -C build-arm64 -j "$JOBS" -k 0 "$@"
libraries=$ROOT/usr/lib/aarch64-linux-gnu
run() {  # run PROGRAM OPTION...: under qemu, with every extension of the processor that it knows
  local program=$1
  shift
  qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$libraries:/usr/aarch64-linux-gnu/lib" \
    "build-arm64/bin/$program" "$@"
}

# Not the tests that start their program anew, which the system cannot run without qemu: the kernels run at both levels below
# instead. Nor a billion pairs to compare. Of the forty pictures of the embedded model that are judged, five, one of each kind.
run_tests() {  # run_tests PROGRAM OPTION...: in as many parts as there are cores, since qemu is slow
  local program=$1 part failed=0 parts
  parts=()
  for ((part = 0; part < JOBS; ++part)); do
    GTEST_TOTAL_SHARDS=$JOBS GTEST_SHARD_INDEX=$part run "$@" >"build-arm64/$program.$part.log" 2>&1 &
    parts+=($!)
  done
  for ((part = 0; part < JOBS; ++part)); do
    wait "${parts[part]}" || { failed=1; grep -aE -A12 'Failure$|^\[  FAILED' "build-arm64/$program.$part.log" || tail -n 20 "build-arm64/$program.$part.log"; }
  done
  cat "build-arm64/$program".[0-9]*.log | awk '/^\[  PASSED/ { n += $4 } /^\[  SKIPPED/ { s += $4 } END { print n + 0 " passed, " s + 0 " skipped" }'
  return $failed
}

# The embedded model, drawn there and here: roundings differ, levels of a pixel by one at the most.
draw() {
  local picture=build-arm64/picture words
  words=(generate --prompt "a red circle left of a blue square" --seed 7 --steps 4 --width 64 --height 64 --dtype f32 --device cpu)
  run lockstep "${words[@]}" --output "$picture.arm64.png"
  { [ -x build/bin/lockstep ] && [ -x .venv/bin/python ]; } || return 0
  build/bin/lockstep "${words[@]}" --output "$picture.here.png"
  .venv/bin/python - "$picture.here.png" "$picture.arm64.png" <<'PY'
import sys
from PIL import Image, ImageChops
here, there = (Image.open(name).convert("RGB") for name in sys.argv[1:])
most = max(highest for _, highest in ImageChops.difference(here, there).getextrema())
print(f"the picture is {most} levels from the one drawn here")
sys.exit(most > 1)
PY
}

for program in "$@"; do
  echo "== $program"
  case $program in
    lockstep) draw ;;
    test_backend)
      # Named, so that a qemu or a build without bfdot fails.
      LOCKSTEP_CPU=neon_bf16 run_tests "$program" --gtest_filter='-All/ForcedLevel.*'
      LOCKSTEP_CPU=portable run_tests "$program" --gtest_filter='*Kernel*:Linear*:Attention*:*Mixed*'
      ;;
    *) LOCKSTEP_FEW_PROMPTS=5 run_tests "$program" --gtest_filter='-*ABillion*' ;;
  esac
done
