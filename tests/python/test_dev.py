"""./dev itself: its help, and what it does where packages are missing. Stand-ins answer for the system's tools."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMANDS = "setup build demo test bench fuzz clang format lint docs clean help".split()


def dev(*arguments, path=None):
    environment = dict(os.environ, PATH=str(path)) if path else dict(os.environ)
    environment.pop("LOCKSTEP_SKIP_PACKAGES", None)
    return subprocess.run([str(ROOT / "dev"), *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


@pytest.fixture
def tools(tmp_path):
    """A PATH with the few tools ./dev starts with, to which a test adds its stand-ins."""
    for name in "bash dirname nproc cat env head tail sed awk git xargs".split():
        (tmp_path / name).symlink_to(subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip())

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


def test_missing_packages_are_installed_with_sudo(tools):
    path, add = tools
    add("dpkg-query", '[ "${@: -1}" = libpng-dev ] || printf "install ok installed"')
    add("apt-get", 'echo "apt-get by $(id -u): $*"')
    add("id", "echo 1000")
    add("sudo", 'echo "sudo: $*" >&2; exit 7')
    done = dev("format", path=path)
    assert done.returncode == 7, "a refused sudo ends it"
    assert "installing libpng-dev" in done.stderr and "sudo: env DEBIAN_FRONTEND=noninteractive apt-get update" in done.stderr


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
