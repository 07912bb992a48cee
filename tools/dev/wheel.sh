#!/usr/bin/env bash
# dist/lockstep-*.whl, with its checks. Called by `./dev wheel`, which has built the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${LOCKSTEP_WHEEL_PYTHON:-.venv/bin/python}
mkdir -p dist
rm -f dist/lockstep-*.whl
# The tag is a promise, which the check below holds it to: glibc 2.36 or newer.
"$PYTHON" -m pip wheel -q --no-deps --no-build-isolation -w dist --config-settings=wheel.tags=py3-none-manylinux_2_36_x86_64 . >&2
"$PYTHON" packaging/wheel/check_wheel.py dist/lockstep-*.whl
