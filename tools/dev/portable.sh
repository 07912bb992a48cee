# What the scripts of ./dev ask of a system, in the words of Debian and of a Mac alike. Sourced, never run. The bash of a Mac is
# 3.2: no mapfile, no ${x,,}, no associative arrays, and an empty array is an error under `set -u`; tests/python/test_dev_scripts.py
# looks.

on_a_mac() { [ "$(uname -s)" = Darwin ]; }

# A Python of 3.10 or newer: on a Mac the one of the formula, for the system's own is older.
any_python() { if on_a_mac && command -v python3.12 >/dev/null; then echo python3.12; else echo python3; fi; }

cores() { nproc 2>/dev/null || sysctl -n hw.ncpu; }

# at_most SECONDS COMMAND...: ends it when it takes longer, with a status that is not 0.
at_most() {
  local secs=$1
  shift
  if command -v timeout >/dev/null; then
    timeout "$secs" "$@"
  else
    perl -e 'alarm shift; exec @ARGV or exit 127' "$secs" "$@"
  fi
}

# formulas_for PACKAGE...: what Homebrew calls these Debian packages, and what a Mac needs beside them; one a line.
formulas_for() {
  local package
  for package in - "$@"; do
    awk -v package="$package" '!/^#/ && $1 == package && $2 != "none:" { for (i = 2; i <= NF; ++i) print $i }' tools/dev/homebrew.txt
  done
}

# The formatter whose style this is: other versions differ. It comes from PyPI, in 1 MB; Debian's brings LLVM along, a quarter of
# all that building would install.
clang_format() {
  if [ -x .venv/bin/clang-format ]; then .venv/bin/clang-format "$@"; else clang-format-14 "$@"; fi
}
