#!/usr/bin/env bash
# The most that works, shown in a minute. Called by `./dev demo`, which has built the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lockstep=$PWD/build/bin/lockstep
python=$PWD/.venv/bin/python
out=$PWD/build/demo
mkdir -p "$out"
show() { printf '\n$ lockstep %s\n' "$*"; "$lockstep" "$@"; }

show doctor
echo
echo "1. Text to image with the embedded model: a page of pictures"
show generate --prompt-file tools/dev/demo_prompts.txt --seed 7 --output "$out/picture-{index}.png" --sheet "$out/sheet.png"
echo
echo "2. Editing with the embedded edit model: the same circle in another colour"
show generate --prompt "a red circle on a white background" --seed 7 --output "$out/before.png"
show edit --input-image "$out/before.png" --prompt "make the circle blue" --seed 7 --output "$out/after.png"
echo
echo "3. One run recorded at its taps, and the same by the naive reference backend, compared tensor by tensor"
prompt="a red circle left of a blue square"
show --home "$out/runs" --debug generate --prompt "$prompt" --seed 1 --steps 2 --width 64 --height 64 --run-name fast --output "$out/fast.png"
show --home "$out/runs" --debug generate --prompt "$prompt" --seed 1 --steps 2 --width 64 --height 64 --run-name naive --device reference --output "$out/naive.png"
show --home "$out/runs" compare latest:naive latest:fast
echo
echo "4. A port to MLX with a mistake in it: from two recordings to the line to fix"
if "$python" -c 'import torch, mlx.core' 2>/dev/null; then
  cd "$out"
  show --home "$out/runs" --quiet record --inputs --name reference -- "$python" ../../examples/zoom/reference.py
  show --home "$out/runs" --quiet record --inputs --name port -- "$python" ../../examples/zoom/port.py
  status=0
  show --home "$out/runs" zoom latest:reference latest:port || status=$?
  [ "$status" -eq 1 ]  # a line was named
else
  echo "Skipped: it needs PyTorch and MLX. './dev setup' installs both; then run './dev demo' again."
fi
echo
cat <<END
What to do next
  look at       $out/sheet.png, before.png and after.png
  draw          build/bin/lockstep generate --prompt "three green stars" --output stars.png
  learn         build/bin/lockstep tutorial       ten minutes: find a bug in a port, stop a program, talk as an agent does
  in a browser  build/bin/lockstep serve --open
  your port     build/bin/lockstep record --inputs -- python your_port.py, then compare: docs/porting.md
  check         ./dev test                        everything, about half an hour
The recorded runs are in $out/runs; what the build said, in build/logs.
END
