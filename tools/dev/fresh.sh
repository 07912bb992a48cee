#!/usr/bin/env bash
# `./dev demo` and `./dev test` on a bare Debian 12, from the sources alone: fresh.sh COMMAND... . Needs root and debootstrap; the
# tree stays in build/ for the next time, the sources in it are new each time. Called by `./dev fresh`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/dev/bare_tree.sh
tree=$PWD/build/fresh-bookworm
bare_tree bookworm "$tree"
rm -rf "$tree/lockstep"
mkdir "$tree/lockstep"
# What was committed, without .git: an archive is what a newcomer may have. An archive itself has no .git: then the folder, without
# what was built in it.
if git rev-parse --verify -q HEAD >/dev/null 2>&1; then
  git archive HEAD | tar -x -C "$tree/lockstep"
else
  tar -c --exclude=./build --exclude='./build-*' --exclude=./.venv --exclude='./.venv-*' --exclude=./dist . |
    tar -x -C "$tree/lockstep"
fi
cp /etc/resolv.conf "$tree/etc/resolv.conf"
# How this machine reaches its package archives: Debian's and Python's. LOCKSTEP_FRESH_FILES names what else that takes,
# such as a folder of wheels.
for file in /etc/apt/apt.conf.d/*proxy* /etc/pip.conf ${LOCKSTEP_FRESH_FILES:-}; do
  [ -e "$file" ] || continue
  mkdir -p "$tree$(dirname "$file")"
  cp -RL "$file" "$tree$(dirname "$file")"
done
for command in "$@"; do
  began=$SECONDS
  status=0
  in_bare_tree "$tree" "cd /lockstep && ./dev $command" || status=$?
  printf './dev %s on a bare Debian 12: exit status %d after %d s\n' "$command" "$status" $((SECONDS - began))
  [ "$status" -eq 0 ] || exit "$status"
done
