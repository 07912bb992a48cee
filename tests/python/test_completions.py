"""The completions and the manual page that the program writes, read by the shells and by man."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = os.environ.get("LOCKSTEP_BIN", str(ROOT / "build/bin/lockstep"))

# What a user has typed, the last word unfinished, and words that must and must not be offered.
TYPED = [
    (["ten"], {"tensors"}, {"generate"}),
    (["tensors", ""], {"diff", "show"}, {"generate"}),
    (["--json", "tensors", "di"], {"diff"}, {"show"}),
    (["--home", "tensors", "gen"], {"generate"}, {"diff"}),  # the value of an option is no command
    (["generate", "--neg"], {"--negative-prompt"}, {"--prompt"}),
    (["generate", "--qui"], {"--quiet"}, set()),  # the program's own options hold everywhere
    (["generate", "--schedule", ""], {"model", "lightning"}, {"generate"}),
    (["--color", "al"], {"always"}, {"never"}),
]


def written(form):
    return subprocess.run([LOCKSTEP, "docs", form], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for form in ("bash", "zsh", "fish", "man"):
        (folder / form).write_text(written(form))
    return folder


def offered_by_bash(file, words):
    script = (
        'source "$1"; shift; COMP_WORDS=(lockstep "$@"); COMP_CWORD=$#; _lockstep; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return ["bash", "-c", script, "bash", str(file), *words]


def offered_by_zsh(file, words):
    # Completion proper needs a terminal; the functions it would call stand for it. compadd itself drops what does not fit.
    script = """compdef() { }
compadd() { shift; for word in "$@"; do [[ $word == ${words[CURRENT]}* ]] && print -r -- $word; done; true }
_files() { }
source "$1"; shift; words=(lockstep "$@"); CURRENT=$#words; _lockstep"""
    return ["zsh", "-f", "-c", script, "zsh", str(file), *words]


def offered_by_fish(file, words):
    script = 'source "$TRIED"; complete -C "$LINE" | string replace -r "\\t.*" ""'
    return ["env", f"TRIED={file}", f"LINE=lockstep {' '.join(words)}", "fish", "--no-config", "-c", script]


SHELLS = {"bash": offered_by_bash, "zsh": offered_by_zsh, "fish": offered_by_fish}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("words, wanted, unwanted", TYPED, ids=[" ".join(case[0]) for case in TYPED])
def test_a_shell_offers_what_fits(folder, shell, words, wanted, unwanted):
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    done = subprocess.run(
        SHELLS[shell](folder / shell, words),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(folder)},
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    offered = set(done.stdout.split())
    assert wanted <= offered and not unwanted & offered, offered


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_users_program_is_not_ours_to_complete(folder, shell):
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    command = SHELLS[shell](folder / shell, ["record", "--", "python", "--"])
    done = subprocess.run(
        [part.replace("_files() { }", "_files() { }\n_normal() { }") for part in command],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.strip() == "", done


def test_the_manual_page_has_every_command(folder):
    if not shutil.which("man"):
        pytest.skip("no man")
    done = subprocess.run(
        ["man", "--warnings", "-l", str(folder / "man")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANROFFOPT": ""},
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    reference = (ROOT / "docs/cli.md").read_text()
    commands = [line.split("`")[1] for line in reference.splitlines() if line.startswith("## `lockstep ")]
    assert len(commands) > 20
    for command in commands:
        assert f"\n   {command}\n" in done.stdout, command
    assert "--negative-prompt" in done.stdout and "EXIT STATUS" in done.stdout


def test_nothing_unknown_is_written():
    done = subprocess.run([LOCKSTEP, "docs", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
