#!/usr/bin/env bash
# The most that works, shown in a minute. Called by `./dev demo`, which has built the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lockstep=build/bin/lockstep
out=build/demo
mkdir -p "$out"
show() { printf '\n$ lockstep %s\n' "$*"; "$lockstep" "$@"; }

show doctor
echo
echo "1. Text to image with the embedded model: a page of pictures"
show generate --prompt-file tools/dev/demo_prompts.txt --seed 7 --output "$out/picture-{index}.png" --sheet "$out/sheet.png"
echo
echo "2. One run recorded at its taps, and the same by the naive reference backend, compared tensor by tensor"
prompt="a red circle left of a blue square"
show --home "$out/runs" --debug generate --prompt "$prompt" --seed 1 --steps 2 --width 64 --height 64 --run-name fast --output "$out/fast.png"
show --home "$out/runs" --debug generate --prompt "$prompt" --seed 1 --steps 2 --width 64 --height 64 --run-name naive --device reference --output "$out/naive.png"
show --home "$out/runs" compare latest:naive latest:fast
echo
echo "Look at $out/sheet.png; the recorded runs are in $out/runs."
