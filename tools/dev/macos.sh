#!/usr/bin/env bash
# Compiles everything for Macs with ARM processors, here: the clang, the headers and the stubs of PyPI's ziglang need no SDK.
# Everything is linked too; what comes from outside libraries stays to be found on the Mac, but for MLX, whose wheel for Macs is
# fetched. Nothing is run.
# Called by `./dev macos [TARGET...]` on Debian, which has the outside libraries' headers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/dev/portable.sh
JOBS=${LOCKSTEP_JOBS:-$(cores)}
ZIG_VERSION=0.17.0
BUILD=$PWD/build-macos
TARGET=aarch64-macos.13.3  # the oldest whose C++ library writes fractions with std::to_chars

say() { printf '%s\n' "$*" >&2; }

# An environment of its own: 400 MB that nothing else needs.
install_compiler() {
  local stamp=.venv-macos/.lockstep-ziglang
  [ "$(cat "$stamp" 2>/dev/null)" = "$ZIG_VERSION" ] && return
  say "installing ziglang $ZIG_VERSION into .venv-macos"
  python3 -m venv --clear .venv-macos
  .venv-macos/bin/python -m pip install -q "ziglang==$ZIG_VERSION" >&2
  echo "$ZIG_VERSION" >"$stamp"
}

tool() {  # tool NAME WORDS: a program of the toolchain
  printf '#!/bin/sh\n# ziglang %s\nexport ZIG_GLOBAL_CACHE_DIR="%s" ZIG_LOCAL_CACHE_DIR="%s"\nexec %s "$@"\n' \
    "$ZIG_VERSION" "$BUILD/zig-cache" "$BUILD/zig-cache" "$2" >"$BUILD/tools/$1"
  chmod +x "$BUILD/tools/$1"
}

# Zig's linker knows neither bundles nor -exported_symbol, both of which a Mac's has: a library is linked in their place,
# with everything exported. Its math.h asks float.h for infinity alone, and libc++ lets whoever asks next have nothing:
# both halves are read first.
compiler() {  # compiler NAME WORDS: a program of the toolchain that links as well
  tool "$1" "$2"
  sed -i '$i for word do\n  shift\n  case $word in\n    -bundle) set -- "$@" -dynamiclib ;;\n    -Wl,-exported_symbol,*) ;;\n    *) set -- "$@" "$word" ;;\n  esac\ndone' \
    "$BUILD/tools/$1"
}

make_tools() {
  local zig
  zig=$(.venv-macos/bin/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')
  mkdir -p "$BUILD/tools"
  compiler cc "'$zig' cc -target $TARGET"
  compiler cxx "'$zig' c++ -target $TARGET -include float.h -include __float_infinity_nan.h"
  tool ar "'$zig' ar"
  tool ranlib "'$zig' ranlib"
  tool install_name_tool true
}

# Headers of the Debian packages, in a folder where the C library's are not: those come with the compiler.
copy_headers() {  # copy_headers PACKAGE_FILE...: names on stdin
  local file to
  while read -r file; do
    [ -f "$file" ] || continue
    to=${file#/usr/include/}
    to=$BUILD/include/${to#"$(uname -m)"-linux-gnu/}
    mkdir -p "$(dirname "$to")"
    cp -L "$file" "$to"
  done
}

stage_headers() {
  local packages version archive
  packages=$(awk '!/^#/ && $1 ~ /^(lib|zlib|nlohmann).*-dev$/ && $1 !~ /dnnl|benchmark/ { print $1 }' tools/dev/packages.txt)
  version=$(dpkg-query -W $packages)
  [ "$version" = "$(cat "$BUILD/include/.packages" 2>/dev/null)" ] && return
  rm -rf "$BUILD/include" "$BUILD/openmp"
  mkdir -p "$BUILD/include" "$BUILD/openmp"
  dpkg-query -L $packages | grep -E '^/usr/include/.*\.(h|hpp|ipp|inc)$|^/usr/include/[a-z]+/[^.]*$' | copy_headers
  # OpenMP's header is the compiler's: this is the library that a Mac has too.
  (cd "$BUILD/openmp" && apt-get download -q libomp-14-dev >/dev/null 2>&1 && dpkg-deb -x libomp-14-dev_*.deb .) ||
    { say "libomp-14-dev could not be fetched; try apt-get update"; exit 3; }
  cp "$(find "$BUILD/openmp" -name omp.h)" "$BUILD/include/"
  # Debian's pyconfig.h leads to the one of the architecture. What it says of sizes holds on a Mac as well.
  python3 - "$BUILD/include/python" <<'PY'
import pathlib, shutil, sys, sysconfig
headers = pathlib.Path(sysconfig.get_config_var("INCLUDEPY"))
shutil.copytree(headers, sys.argv[1])
for name in (sysconfig.get_config_h_filename(), *map(str, pathlib.Path("/usr/include").glob(f"*-linux-gnu/{headers.name}/pyconfig.h"))):
    text = pathlib.Path(name).read_text()
    if "SIZEOF_LONG" in text:
        (pathlib.Path(sys.argv[1]) / "pyconfig.h").write_text(text)
PY
  echo "$version" >"$BUILD/include/.packages"
}

# MLX's wheel for Macs: the headers and the library that the leaf is built against there.
fetch_mlx() {
  local version folder=$BUILD/mlx
  version=$(sed -n 's/^mlx.*==//p' tools/dev/requirements.txt)
  [ "$version" = "$(cat "$folder/.version" 2>/dev/null)" ] && return
  say "fetching MLX $version for Macs into build-macos"
  rm -rf "$folder"
  .venv-macos/bin/python -m pip download -q --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.12 \
    -d "$folder" "mlx-metal==$version" >&2
  python3 - "$folder" <<'PY'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith(("mlx/include/", "mlx/share/cmake/")) or name == "mlx/lib/libmlx.dylib":
            to = folder / name.removeprefix("mlx/")
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(archive.read(name))
wheel.unlink()
PY
  echo "$version" >"$folder/.version"
}

install_compiler
mkdir -p "$BUILD"
make_tools
stage_headers
fetch_mlx
cmake --preset macos >"$BUILD/configure.log" 2>&1 || { cat "$BUILD/configure.log" >&2; exit 1; }
# ccache knows these scripts neither by their names nor, since they are written anew each time, by their dates.
# A file that changed is compiled without being read by the preprocessor first, a fifth of the time.
export CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK=content CCACHE_DEPEND=1
# Every error at once: a change that breaks ten files should not take ten runs to mend.
ninja -C "$BUILD" -j "$JOBS" -k 0 "$@"
[ $# -eq 0 ] || exit 0
python3 tools/dev/check_mach_o.py "$BUILD"/bin/* "$BUILD"/lib/*.dylib "$BUILD"/lib/*.so
python3 - "$BUILD/compile_commands.json" "$TARGET" <<'PY'
import json, pathlib, sys
given = {pathlib.Path(one["file"]) for one in json.loads(pathlib.Path(sys.argv[1]).read_text())}
joined = [line for file in given if "joined" in file.parts for line in file.read_text().splitlines() if line.startswith("#include")]
print(f"{len({*joined}) + sum('Unity' not in file.parts for file in given)} files compiled for {sys.argv[2]}, all warnings being errors")
PY
