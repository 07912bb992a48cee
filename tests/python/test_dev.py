"""./dev itself: its help, and what it does where packages are missing. Stand-ins answer for the system's tools."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMANDS = "setup build demo test bench fuzz clang tsan wheel deb arm64 format lint docs clean help".split()


def dev(*arguments, path=None, root=ROOT):
    environment = dict(os.environ, PATH=str(path)) if path else dict(os.environ)
    environment.pop("LOCKSTEP_SKIP_PACKAGES", None)
    return subprocess.run(
        [str(root / "dev"), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def tools(tmp_path):
    """A PATH with the few tools ./dev starts with, to which a test adds its stand-ins."""
    for name in "bash dirname nproc uname cat env head tail sed awk find xargs cmp cp grep mkdir touch chmod".split():
        (tmp_path / name).symlink_to(
            subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        )

    def add(name, script):
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return tmp_path, add


def test_every_command_has_help():
    listed = dev("help").stdout
    for command in COMMANDS:
        assert f"\n  {command}" in listed
        for flag in ("--help", "-h"):
            done = dev(command, flag)
            assert done.returncode == 0 and done.stdout.startswith(f"usage: ./dev {command}"), done
    assert dev("--help").stdout == listed


def test_an_unknown_command_is_a_usage_error():
    done = dev("tset")
    assert done.returncode == 2 and "no command 'tset'" in done.stderr and "  test:" in done.stderr


def test_elsewhere_it_says_what_to_install(tools):
    path, _ = tools
    done = dev("setup", path=path)
    assert done.returncode == 3
    assert "LOCKSTEP_SKIP_PACKAGES=1" in done.stderr
    for package in (ROOT / "tools/dev/packages.txt").read_text().split():
        assert package in done.stderr


def test_a_refused_sudo_says_what_root_must_do(tools):
    path, add = tools
    add("dpkg-query", '[ "${@: -1}" = libpng-dev ] || printf "install ok installed"')
    add("apt-get", 'echo "apt-get by $(id -u): $*"')
    add("id", "echo 1000")
    add("sudo", 'echo "sudo: $*" >&2; exit 7')
    done = dev("format", path=path)
    assert done.returncode == 3, done.stderr
    assert (
        "installing libpng-dev" in done.stderr
        and "sudo: env DEBIAN_FRONTEND=noninteractive apt-get -q update" in done.stderr
    )
    assert done.stderr.splitlines()[-1] == "apt-get install libpng-dev"


def test_a_failed_installation_ends_the_command(tools):
    path, add = tools
    add("dpkg-query", '[ "${@: -1}" = libpng-dev ] || printf "install ok installed"')
    add("apt-get", '[ "$2" = update ]')
    add("clang-format-14", "echo formatted")
    add("id", "echo 0")
    done = dev("format", path=path)
    assert done.returncode == 3 and done.stderr.splitlines()[-1] == "apt-get install libpng-dev"
    assert "formatted" not in done.stdout


def test_without_sudo_it_says_what_root_must_do(tools):
    path, add = tools
    add("dpkg-query", '[ "${@: -1}" = libpng-dev ] || printf "install ok installed"')
    add("apt-get", "exit 9")
    add("id", "echo 1000")
    done = dev("format", path=path)
    assert done.returncode == 3 and "apt-get install libpng-dev" in done.stderr


def test_root_needs_no_sudo_and_nothing_is_installed_twice(tools):
    path, add = tools
    add("dpkg-query", 'printf "install ok installed"')
    add("apt-get", "exit 9")
    add("clang-format-14", "exit 0")
    add("id", "echo 0")
    done = dev("format", path=path)
    assert done.returncode == 0 and done.stderr == ""


def copy_of_dev(folder):
    """./dev and its scripts alone: what it makes, it makes there."""
    shutil.copytree(ROOT / "tools/dev", folder / "tools/dev")
    shutil.copy(ROOT / "dev", folder / "dev")
    return folder


# A Debian whose packages are a folder of files and whose python3 makes environments that write down what pip is asked for.
DPKG_QUERY = 'd=$(dirname "$0")/installed; [ -e "$d/${@: -1}" ] && printf "install ok installed"'
APT_GET = """d=$(dirname "$0")/installed; mkdir -p "$d"; echo "apt-get $*" >> "$d.log"
[ "$2" = install ] || exit 0
for word in "$@"; do case "$word" in -*|install) ;; *) touch "$d/$word" ;; esac; done"""
PYTHON3 = """case "$*" in
"-m venv"*) folder=${@: -1}; mkdir -p "$folder/bin"; touch "$folder/pip"; cp "$0" "$folder/bin/python"; chmod +x "$folder/bin/python" ;;
"-m pip"*) [ -e .venv/pip ] || exit 1; echo "pip $*" >> pip.log ;;
esac"""


@pytest.mark.parametrize("user", [0, 1000])
def test_setup_installs_once_as_root_and_with_sudo(tools, tmp_path_factory, user):
    path, add = tools
    root = copy_of_dev(tmp_path_factory.mktemp("copy"))
    add("dpkg-query", DPKG_QUERY)
    add("apt-get", APT_GET)
    add("python3", PYTHON3)
    add("id", f"echo {user}")
    if user:
        add("sudo", 'echo "$*" >> "$(dirname "$0")/sudo.log"; exec "$@"')
    first = dev("setup", path=path, root=root)
    assert first.returncode == 0, first.stderr
    packages = (ROOT / "tools/dev/packages.txt").read_text().split()
    assert sorted(file.name for file in (path / "installed").iterdir()) == sorted(packages)
    assert (path / "sudo.log").exists() == bool(user), "sudo where it is needed, and only there"
    apt, pip = (path / "installed.log").read_text(), (root / "pip.log").read_text()
    assert apt.count("apt-get -q install") == 1 and "-r tools/dev/requirements.txt" in pip
    second = dev("setup", path=path, root=root)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert ((path / "installed.log").read_text(), (root / "pip.log").read_text()) == (apt, pip), "nothing is done twice"


def test_a_half_made_environment_is_made_again(tools, tmp_path_factory):
    path, add = tools
    root = copy_of_dev(tmp_path_factory.mktemp("copy"))
    add("dpkg-query", 'printf "install ok installed"')
    add("apt-get", "exit 9")
    add("python3", PYTHON3)
    assert dev("setup", path=path, root=root).returncode == 0
    (root / ".venv/pip").unlink()  # as after an interrupt between the interpreter and pip
    (root / ".venv/.lockstep-requirements").unlink()
    done = dev("setup", path=path, root=root)
    assert done.returncode == 0 and (root / ".venv/pip").exists(), done.stderr


def test_a_changed_requirement_is_installed(tools, tmp_path_factory):
    path, add = tools
    root = copy_of_dev(tmp_path_factory.mktemp("copy"))
    add("dpkg-query", 'printf "install ok installed"')
    add("apt-get", "exit 9")
    add("python3", PYTHON3)
    assert dev("setup", path=path, root=root).returncode == 0
    before = (root / "pip.log").read_text()
    with open(root / "tools/dev/requirements.txt", "a") as requirements:
        requirements.write("another==1.0\n")
    assert dev("setup", path=path, root=root).returncode == 0
    assert len((root / "pip.log").read_text()) > len(before)


@pytest.mark.parametrize(
    "command, lists",
    [
        ("build", ["packages"]),
        ("fuzz", ["packages", "packages-clang"]),
        ("clang", ["packages", "packages-clang"]),
        ("tsan", ["packages", "packages-clang"]),
        ("arm64", ["packages", "packages-arm64"]),
    ],
)
def test_elsewhere_every_command_names_all_its_packages_at_once(tools, command, lists):
    path, _ = tools
    done = dev(command, path=path)
    assert done.returncode == 3 and "not Debian" in done.stderr
    wanted = [package for name in lists for package in (ROOT / f"tools/dev/{name}.txt").read_text().split()]
    assert done.stderr.split()[-len(wanted) :] == wanted
