#!/usr/bin/env bash
# Commands of ./dev. Each function cmd_NAME is one command; the comment above it is its help, its first line the summary.
set -euo pipefail
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
PYTHON=.venv/bin/python

source tools/dev/progress.sh
source tools/dev/python_headers.sh

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

# install_packages [LIST...]: the Debian packages of tools/dev/packages.txt and of these lists that are missing, with sudo
# where needed; on a Mac their formulas.
install_packages() {
  local lists missing package list
  lists=(tools/dev/packages.txt) missing=()
  for list in "$@"; do lists+=("tools/dev/$list"); done
  [ -z "${LOCKSTEP_SKIP_PACKAGES:-}" ] || return 0
  if on_a_mac; then
    install_formulas $(cat "${lists[@]}")
    return
  fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not Debian: install the equivalents of these packages, then run again with LOCKSTEP_SKIP_PACKAGES=1"
    cat "${lists[@]}" >&2
    exit 3
  fi
  while read -r package; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done < <(cat "${lists[@]}")
  [ ${#missing[@]} -eq 0 ] && return
  local as_root
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || say_what_root_installs "there is neither root nor sudo" "${missing[@]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  # A user who may not use sudo is only known when it refuses: asking it beforehand wants a password it may not need.
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  { "${as_root[@]}" update && "${as_root[@]}" install -y --no-install-recommends "${missing[@]}"; } >&2 ||
    say_what_root_installs "they could not be installed" "${missing[@]}"
}

# install_formulas PACKAGE...: what Homebrew has for these Debian packages, where it is missing.
install_formulas() {
  local formula missing
  missing=()
  if ! command -v brew >/dev/null; then
    say "there is no Homebrew: install it, or these formulas in another way, and run again with LOCKSTEP_SKIP_PACKAGES=1"
    formulas_for "$@" >&2
    exit 3
  fi
  for formula in $(formulas_for "$@"); do
    brew list --versions "$formula" >/dev/null 2>&1 || missing+=("$formula")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  brew install "${missing[@]}" >&2
}

say_what_root_installs() {  # say_what_root_installs REASON PACKAGE...
  say "packages are missing, and $1. As root:"
  shift
  echo "apt-get install $*" >&2
  exit 3
}

# The reference libraries live in .venv; a stamp of the requirements says whether it is up to date.
install_python() {
  local stamp=.venv/.lockstep-requirements
  cmp -s tools/dev/requirements.txt "$stamp" 2>/dev/null && return
  say "installing the reference libraries into .venv"
  # An environment without pip is one whose making was interrupted.
  "$PYTHON" -m pip --version >/dev/null 2>&1 || "$(any_python)" -m venv --clear .venv
  # torch first and alone: its pinned CPU build satisfies the others, so that no GPU build is pulled in.
  "$PYTHON" -m pip install -q "$(grep '^torch==' tools/dev/requirements.txt)" >&2
  "$PYTHON" -m pip install -q -r tools/dev/requirements.txt >&2
  cp tools/dev/requirements.txt "$stamp"
}

configure() { [ -f "$2/build.ninja" ] || cmake --preset "$1" >/dev/null; }

# setup [--cuda]: install what is missing (Debian packages or Homebrew formulas; the reference libraries in .venv)
#   Does nothing when all is there. LOCKSTEP_SKIP_PACKAGES=1 leaves the system's packages alone.
#   --cuda   also cuBLASLt, cuDNN and their headers, into .venv-cuda: what the CUDA part is built and run with, beside an
#            nvcc of CUDA 13.0 that must be there already
cmd_setup() {
  install_packages
  install_python
  [ "${1:-}" != --cuda ] || install_cuda
}

# An environment of its own: the headers of nvidia-cuda-runtime, which torch's GPU builds pull in, are not those of nvcc.
install_cuda() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || say "there is no nvcc: the CUDA part will not be built"
  [ -x .venv-cuda/bin/python ] || python3 -m venv .venv-cuda
  say "installing cuBLASLt and cuDNN into .venv-cuda"
  .venv-cuda/bin/python -m pip install -q --no-deps 'nvidia-cublas==13.0.*' 'nvidia-cudnn-cu13==9.19.*' \
    'nvidia-cudnn-frontend==1.32.*' 'nvidia-cuda-nvrtc==13.0.*' >&2
  rm -f build/build.ninja  # what was missing is looked for again
}

# build [TARGET...]: build build/bin/lockstep and the tests, or only these targets
#   ./dev build                 everything
#   ./dev build lockstep        the program alone
#   LOCKSTEP_JOBS=N             how many compilers at a time (default: as many as cores)
cmd_build() {
  install_packages
  configure release build
  ninja -C build -j "$JOBS" "$@"
}

# demo: set everything up and show the most that works
#   The pictures and the recorded runs are left in build/demo; what the installation and the build say, in build/logs.
cmd_demo() {
  # Asked for here, where a question can be seen.
  if ! on_a_mac && [ "$(id -u)" != 0 ] && [ -t 0 ] && command -v sudo >/dev/null && are_packages_missing; then sudo -v; fi
  quietly build/logs/packages.log "installing what is missing" install_packages
  quietly build/logs/build.log "building lockstep" build_quietly lockstep
  tools/dev/demo.sh
}

build_quietly() {
  configure release build
  ninja -C build -j "$JOBS" "$@"
}

are_packages_missing() {
  local package
  while read -r package; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || return 0
  done <tools/dev/packages.txt
  return 1
}

# fresh [COMMAND...]: run ./dev demo and ./dev test on a bare Debian 12, from what was committed
#   In a tree of its own, made with debootstrap in build/; needs root. From an archive without .git too. Commands: demo and test,
#   or only those that are given. About 40 minutes on two cores.
cmd_fresh() {
  command -v debootstrap >/dev/null || install_packages packages-bare.txt
  [ $# -gt 0 ] || set -- demo test
  tools/dev/fresh.sh "$@"
}

# test: set everything up and run all checks, stopping at the first red
#   In this order: formatting, layers, unit tests, the same under sanitizers, fuzz corpora, Python tests, documents.
#   Logs are in build/test-logs. A line a minute at least says what is being done. One test alone: see CONTRIBUTING.md.
cmd_test() {
  mkdir -p build/test-logs
  export LOCKSTEP_TEST_NOW=$PWD/build/test-logs/now
  echo "installing what is missing" >"$LOCKSTEP_TEST_NOW"
  start_heartbeat "$LOCKSTEP_TEST_NOW"
  say_if_disk_is_small 10 . "${TMPDIR:-/tmp}"
  cmd_setup
  (install_packages packages-test.txt) || say "without cargo or chromium the tests of Rust or of the report in a browser are skipped"
  tools/dev/test.sh "$@"
}

# say_if_disk_is_small GB FOLDER...: a full disk fails tests in ways that do not look like one.
say_if_disk_is_small() {
  local most=$1 folder free
  shift
  for folder in "$@"; do
    free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge "$most" ] || say "$folder has $free GB free; building and testing take up to $most GB"
  done
}

# bench [NAME [ARGS]]: build and run one benchmark; without a name, list them
cmd_bench() { cmd_setup; tools/dev/bench.sh "$@"; }

# fuzz [SECONDS [TARGET...]]: fuzz the parsers with libFuzzer, each for so many seconds of processor time (default 600)
#   Installs clang. The targets are the files in fuzz/; findings stay in build-fuzz/findings.
cmd_fuzz() {
  install_packages packages-clang.txt
  configure fuzz build-fuzz
  local secs=${1:-600} targets target
  targets=()
  [ $# -gt 0 ] && shift
  [ $# -gt 0 ] || set -- $(ls fuzz/corpus)
  for target in "$@"; do targets+=("fuzz_$target"); done
  ninja -C build-fuzz -j "$JOBS" "${targets[@]}" >&2
  fuzz/run_all.sh "$secs" "$@"
}

# clang: build everything with clang too, all warnings being errors
#   Into build-clang. Installs clang.
cmd_clang() {
  install_packages packages-clang.txt
  configure clang build-clang
  ninja -C build-clang -j "$JOBS" "$@"
}

# tsan [PROGRAM...]: run the test programs that use threads under ThreadSanitizer
#   Into build-tsan. Installs clang.
cmd_tsan() {
  install_packages packages-clang.txt
  configure tsan build-tsan
  tools/dev/tsan.sh "$@"
}

# wheel [--try [SUITE...]]: build the wheel into dist/, and check its size and what it needs
#   With the debugger's extension for each Python here, and for those of newer Debians, whose headers are fetched.
#   --try   also install and use it in a bare Debian, made with debootstrap (default: bookworm trixie forky); needs root
cmd_wheel() {
  cmd_setup
  local headers
  headers=$(python_headers trixie 3.13 || true; python_headers forky 3.14 || true)
  cmake --preset release "-DLOCKSTEP_PYTHON_HEADERS=$(echo $headers | tr ' ' ';')" >/dev/null
  cmd_build lockstep >&2
  tools/dev/wheel.sh
  [ "${1:-}" = --try ] || return 0
  shift
  [ $# -gt 0 ] || set -- bookworm trixie forky
  command -v debootstrap >/dev/null || install_packages packages-bare.txt
  local suite
  for suite in "$@"; do
    say "the wheel in a bare Debian $suite"
    tools/dev/bare_debian.sh "$suite"
  done
}

# deb: build a Debian package into dist/
cmd_deb() {
  cmd_build lockstep >&2
  cpack --config build/CPackConfig.cmake >&2
  ls dist/lockstep_*.deb
}

# device-test: pack the CUDA tests for a machine that has a GPU
#   Into dist/lockstep-device-test.tar.gz, at most 60 MB, with a script `run` inside: nothing has to be installed there but
#   the driver and torch's own libraries.
cmd_device-test() {
  cmake --preset release -DLOCKSTEP_BENCHMARKS=ON >/dev/null
  cmd_build lockstep test_backend bench_cuda_steps bench_cuda_pictures
  tools/dev/device-test.sh
}

# arm64 [PROGRAM...]: compile everything for 64-bit ARM on Linux and run test programs and a drawing under qemu
#   Into build-arm64, with the libraries' packages unpacked there. Installs a cross compiler and qemu. Without names the
#   programs are test_tensor, test_io, test_measure, test_diagnose, test_compare, test_backend, test_pipeline and lockstep.
cmd_arm64() {
  install_packages packages-arm64.txt
  tools/dev/arm64.sh "$@"
}

# macos [TARGET...]: compile everything for Macs with ARM processors, here on Linux, and link libraries and programs
#   Into build-macos, with the clang of PyPI's ziglang in .venv-macos. Nothing of it is run. Needs the headers of Debian's
#   packages, which ./dev setup installs.
cmd_macos() {
  install_packages
  tools/dev/macos.sh "$@"
}

# faults [OPTIONS]: fail every system call of every command once, one at a time, and look at what is left
#   Hours; --sample N tries N of them, --only COMMAND and --kind KIND a part. See tools/faults/inject.py.
cmd_faults() {
  cmd_build lockstep >&2
  "$PYTHON" tools/faults/inject.py "$@"
}

# kills [OPTIONS]: kill commands at 500 random moments and look at what is left
#   --count N and --seed S choose others. See tools/faults/kills.py.
cmd_kills() {
  cmd_build lockstep lockstep_capture >&2
  "$PYTHON" tools/faults/kills.py "$@"
}

# format: format C++ with clang-format and Python with ruff, and wrap Markdown
cmd_format() {
  cmd_setup
  source_files | format_files -i
  "$PYTHON" -m ruff format --quiet .
  "$PYTHON" tools/check_markdown.py --wrap
}

# formatting: fail if a file is not formatted, ruff finds a mistake in Python, or a line or sentence of Markdown is too long
cmd_formatting() {
  source_files | format_files --dry-run -Werror
  "$PYTHON" -m ruff format --check --quiet .
  "$PYTHON" -m ruff check --quiet .
  "$PYTHON" tools/check_markdown.py
}

# lint: formatting and the layer check
cmd_lint() {
  cmd_setup
  cmd_formatting
  "$(any_python)" tools/check_layers.py
}

# docs [--check]: regenerate docs/cli.md and the site in build/site, or fail if docs/cli.md is stale or a link is broken
cmd_docs() { cmd_build lockstep; tools/dev/docs.sh "$@"; }

# clean: remove what was built (not .venv)
cmd_clean() { rm -rf build build-*; }

format_files() {  # format_files OPTION...: names on stdin
  local files
  files=$(cat)
  clang_format "$@" $files
}

# Every source file, by looking rather than by asking git: an archive of the sources has no git folder.
source_files() {
  find src tests fuzz benchmarks include examples python/agent \( -name target -o -name 'build*' \) -prune -o \
    -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.cpp' \) -print
}

# help [COMMAND]: this list, or what one command does
cmd_help() {
  if [ $# -gt 0 ]; then
    require_command "$1"
    echo "usage: ./dev $(help_of "$1" | head -n 1)"
    help_of "$1" | tail -n +2
    return
  fi
  echo "usage: ./dev COMMAND"
  local name
  for name in $(sed -nE 's/^cmd_([a-z0-9-]+)\(\).*/\1/p' "${BASH_SOURCE[0]}"); do echo "  $(help_of "$name" | head -n 1)"; done
  echo "./dev COMMAND --help says more."
}

help_of() {
  awk -v name="cmd_$1()" '/^#/ { block = block substr($0, 3) "\n"; next } index($0, name) == 1 { printf "%s", block; exit } { block = "" }' "${BASH_SOURCE[0]}"
}

require_command() {
  declare -F "cmd_$1" >/dev/null && return
  echo "dev: no command '$1'" >&2
  cmd_help >&2
  exit 2
}

command=${1:-help}
[ $# -gt 0 ] && shift
case "$command" in -h|--help) command=help ;; esac
require_command "$command"
case "${1:-}" in -h|--help) set -- "$command"; command=help ;; esac
"cmd_$command" "$@"
