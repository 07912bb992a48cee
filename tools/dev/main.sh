#!/usr/bin/env bash
# Commands of ./dev. Each function cmd_NAME is one command; the comment above it is its help.
set -euo pipefail
JOBS=${LOCKSTEP_JOBS:-$(nproc)}
PYTHON=.venv/bin/python

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian: install the equivalents of these packages, then run again with LOCKSTEP_SKIP_PACKAGES=1"
    cat tools/dev/packages.txt >&2
    [ -n "${LOCKSTEP_SKIP_PACKAGES:-}" ] || exit 3
    return
  fi
  while read -r package; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done < tools/dev/packages.txt
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  say "installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
}

# The reference libraries live in .venv; a stamp of the requirements says whether it is up to date.
install_python() {
  local stamp=.venv/.lockstep-requirements
  cmp -s tools/dev/requirements.txt "$stamp" 2>/dev/null && return
  say "installing the reference libraries into .venv"
  [ -x "$PYTHON" ] || python3 -m venv .venv
  # torch first and alone: its pinned CPU build satisfies the others, so that no GPU build is pulled in.
  "$PYTHON" -m pip install -q "$(grep '^torch==' tools/dev/requirements.txt)" >&2
  "$PYTHON" -m pip install -q -r tools/dev/requirements.txt >&2
  cp tools/dev/requirements.txt "$stamp"
}

configure() { [ -f "$2/build.ninja" ] || cmake --preset "$1" >/dev/null; }

# setup: install what is missing (Debian packages; the reference libraries in .venv)
cmd_setup() { install_packages; install_python; }

# build: build build/bin/lockstep and the tests
cmd_build() {
  install_packages
  configure release build
  ninja -C build -j "$JOBS" "$@"
}

# demo: set everything up and show the most that works
cmd_demo() {
  cmd_build lockstep >&2
  tools/dev/demo.sh
}

# test: set everything up and run all checks, stopping at the first red
cmd_test() { cmd_setup; tools/dev/test.sh "$@"; }

# bench [NAME]: build and run the benchmarks (or one of them)
cmd_bench() { cmd_setup; tools/dev/bench.sh "$@"; }

# format: format every source file
cmd_format() { install_packages; source_files | xargs clang-format-14 -i; }

# formatting: fail where a source file is not formatted
cmd_formatting() { source_files | xargs clang-format-14 --dry-run -Werror; }

# lint: formatting and the layer check
cmd_lint() {
  install_packages
  cmd_formatting
  python3 tools/check_layers.py
}

# docs: regenerate the references in docs/ from the program
cmd_docs() { cmd_build lockstep; tools/dev/docs.sh "$@"; }

# clean: remove what was built (not .venv)
cmd_clean() { rm -rf build build-*; }

source_files() { git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'fuzz/*.cpp' 'benchmarks/*.cpp' 'benchmarks/*.h' 'include/*.h' 'include/*.hpp' 'examples/*.cpp'; }

# help: this list
cmd_help() {
  echo "usage: ./dev COMMAND"
  awk '/^# [a-z]+.*: / { help = substr($0, 3) } /^cmd_[a-z]+\(\)/ { if (help != "") print "  " help; help = "" }' "${BASH_SOURCE[0]}"
}

command=${1:-help}
[ $# -gt 0 ] && shift
case "$command" in -h|--help) command=help ;; esac
if ! declare -F "cmd_$command" >/dev/null; then
  echo "dev: no command '$command'" >&2
  cmd_help >&2
  exit 2
fi
"cmd_$command" "$@"
