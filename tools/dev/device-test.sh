#!/usr/bin/env bash
# Packs the CUDA tests into one archive for a machine that has a GPU and cannot build: the programs, the libraries they
# link, a small model and a script that runs all of it and prints counts. Called by `./dev device-test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name=lockstep-device-test
folder=build/$name
programs=(test_backend bench_cuda_steps bench_cuda_pictures lockstep)
[ -f build/bin/liblockstep_cuda.so ] || { echo "the CUDA part was not built: ./dev setup --cuda, then ./dev build" >&2; exit 3; }
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" dist
for program in "${programs[@]}" liblockstep_cuda.so; do strip -o "$folder/bin/$program" "build/bin/$program"; done
# Everything but the C and C++ runtimes, which a machine with a compiler's libraries or torch has.
for program in "${programs[@]}"; do ldd "$folder/bin/$program"; done |
  awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so/ { print $3 }' | sort -u |
  while read -r library; do cp -L "$library" "$folder/lib/"; done
strip "$folder"/lib/* 2>/dev/null || true
cp -r tests/goldens/t2i_f32/model "$folder/model"
cp tools/dev/device_test_run.sh "$folder/run"
tar -C build -czf "dist/$name.tar.gz" "$name"
size=$(stat -c %s "dist/$name.tar.gz")
[ "$size" -le 60000000 ] || { echo "dist/$name.tar.gz has $size bytes, more than 60 MB" >&2; exit 1; }
echo "dist/$name.tar.gz, $((size / 1000000)) MB. On the machine with the GPU: tar xzf $name.tar.gz && $name/run"
