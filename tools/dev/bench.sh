#!/usr/bin/env bash
# bench.sh NAME [ARGS]: builds and runs benchmarks/NAME.cpp or benchmarks/NAME.py. Without a name: lists them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
export LOCKSTEP_BIN="$PWD/build/bin/lockstep"

# A benchmark's first comment or docstring line says what it measures.
describe() { sed -nE '1,3s/^(\/\/|#|""") *([^!].*[^"])("{3})?$/\2/p' "$1" | head -n 1; }

if [ $# -eq 0 ]; then
  echo "usage: ./dev bench NAME [ARGS]"
  for file in benchmarks/*.cpp benchmarks/*.py; do
    [ -e "$file" ] || continue
    name=$(basename "${file%.*}")
    printf '  %-18s %s\n' "$name" "$(describe "$file")"
  done
  exit 0
fi

name=$1
shift
if [ ! -e "benchmarks/$name.cpp" ] && [ ! -e "benchmarks/$name.py" ]; then
  echo "bench: no benchmark '$name'; ./dev bench lists them" >&2
  exit 2
fi
cmake --preset release -DLOCKSTEP_BENCHMARKS=ON >/dev/null
targets=(lockstep)
[ -e "benchmarks/$name.cpp" ] && targets+=("bench_$name")
# A script says in a comment "needs:" what else it runs.
[ -e "benchmarks/$name.py" ] && targets+=($(sed -nE 's/^# needs: //p' "benchmarks/$name.py"))
ninja -C build -j "$JOBS" "${targets[@]}" >&2
# A Python script may drive the program of the same name: then the script is the benchmark.
if [ -e "benchmarks/$name.py" ]; then
  exec .venv/bin/python "benchmarks/$name.py" "$@"
fi
exec "build/bin/bench_$name" "$@"
