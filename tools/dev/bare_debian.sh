#!/usr/bin/env bash
# Tries the wheel in dist/ in a bare Debian: bare_debian.sh SUITE. Needs root and debootstrap; the tree stays in build/ for the next
# time. Called by `./dev wheel --try`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
suite=$1
tree=$PWD/build/debian-$suite
if [ ! -e "$tree/made" ]; then
  rm -rf "$tree"
  # Nothing but Debian's base and a Python that can make environments.
  debootstrap --variant=minbase --include=python3-venv "$suite" "$tree" "${LOCKSTEP_DEBIAN_MIRROR:-http://deb.debian.org/debian}" \
    >"$PWD/build/debootstrap-$suite.log" 2>&1 || { tail "$PWD/build/debootstrap-$suite.log" >&2; exit 3; }
  touch "$tree/made"
fi
rm -rf "$tree/try"
mkdir "$tree/try"
cp dist/lockstep-*.whl packaging/wheel/try_wheel.py "$tree/try/"
mkdir -p "$tree/proc" "$tree/dev"
# A namespace of its own: what is mounted there is gone with its last process.
unshare --mount --pid --fork bash -euc '
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  cd /
  exec chroot "$1" env -i PATH=/usr/bin:/bin LANG=C.UTF-8 sh -c "python3 /try/try_wheel.py /try/lockstep-*.whl"' sh "$tree"
