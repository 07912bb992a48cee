#!/usr/bin/env bash
# Tries the wheel in dist/ in a bare Debian: bare_debian.sh SUITE. Needs root and debootstrap; the tree stays in build/ for the next
# time. Called by `./dev wheel --try`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/dev/bare_tree.sh
tree=$PWD/build/debian-$1
bare_tree "$1" "$tree" python3-venv  # nothing but Debian's base and a Python that can make environments
rm -rf "$tree/try"
mkdir "$tree/try"
cp dist/lockstep-*.whl packaging/wheel/try_wheel.py "$tree/try/"
# torch is taken from the reference libraries, where the tree's Python is of their version.
libraries=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
in_bare_tree "$tree" "python3 /try/try_wheel.py /try/lockstep-*.whl --libraries /shared" "$libraries"
