#!/usr/bin/env bash
# The most that works, shown in a minute. Called by `./dev demo`, which has built the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lockstep=build/bin/lockstep
show() { printf '\n$ lockstep %s\n' "$*"; "$lockstep" "$@"; }

show doctor
# Without --model, generate uses the embedded model; a build that has none yet says so, and the demo goes on.
if "$lockstep" generate --help >/dev/null 2>&1; then
  mkdir -p build/demo
  show generate --prompt "a red circle left of a blue square" --seed 1 --output build/demo/demo.png ||
    echo "(generate needs --model in this build)"
fi
