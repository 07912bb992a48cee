"""Puts the shared libraries that a program or library needs into a folder beside it, and makes it look there.

What every Linux of the wheel's tag has (glibc, the C++ runtime) stays outside. Each copy gets a name of its own: a process that
already holds another library of that name, or later opens one, must not be given ours.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess

# The part of PEP 600's list that we use; zlib is on the list too, but not in every container.
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so[.0-9]*")


def answer_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(file):
    """Every library that is loaded with a file, by the name it is asked for; absent ones are an error."""
    found = {}
    for line in answer_of("ldd", file).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if not arrow:
            continue
        if not path.startswith("/"):
            raise SystemExit(
                f"[wheel] {file} needs {name}, which was not found; try installing what tools/dev/packages.txt names"
            )
        if not OF_THE_SYSTEM.fullmatch(name):
            found[name] = pathlib.Path(path.split(" (")[0]).resolve()
    return found


def own_name(name):
    stem, suffix = name.split(".so", 1)
    return f"{stem}-lockstep.so{suffix}"


def keep_licence(library, folder):
    """The licence of the package that a library came in, where there is a Debian to ask."""
    if not shutil.which("dpkg-query"):
        return
    # Debian's lists say /usr/lib or /lib, whichever a package chose.
    for path in (str(library), str(library).removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(f"/usr/share/doc/{package}/copyright", folder / f"{package}.txt")
            return


def bundle(file, folder, patchelf, licences):
    libraries = libraries_of(file)
    folder.mkdir(parents=True, exist_ok=True)
    renames = [word for name in libraries for word in ("--replace-needed", name, own_name(name))]
    for name, path in libraries.items():
        copy = folder / own_name(name)
        if copy.exists():
            continue  # another file of this wheel needs it too
        shutil.copyfile(path, copy)
        copy.chmod(0o755)
        subprocess.run([patchelf, "--set-soname", copy.name, "--set-rpath", "$ORIGIN", *renames, copy], check=True)
        keep_licence(path, licences)
    where = os.path.join("$ORIGIN", os.path.relpath(folder, file.parent))
    subprocess.run([patchelf, "--set-rpath", where, *renames, file], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--patchelf", required=True)
    parser.add_argument("--licences", type=pathlib.Path, required=True, help="where the libraries' licences go")
    options = parser.parse_args()
    bundle(options.file, options.folder, options.patchelf, options.licences)


if __name__ == "__main__":
    main()
