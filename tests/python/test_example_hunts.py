"""The answers that README.md and docs/from_noise_to_a_picture.md show are what the program says about the examples."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT

pytest.importorskip("mlx.core")
pytest.importorskip("diffusers")

PAGE = (ROOT / "docs" / "from_noise_to_a_picture.md").read_text()
README = (ROOT / "README.md").read_text()


def lockstep(folder, *arguments, status=0):
    environment = {**os.environ, "LOCKSTEP_HOME": str(folder / ".lockstep"), "LOCKSTEP_PYTHON": sys.executable}
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def settled(text):
    """Without what depends on the machine: how rounding came out, and how many tensors it touched."""
    text = re.sub(r"\d+(\.\d+)?(e[-+]\d+)? (relative|times the noise floor of|of yours unexplained)", r"N \3", text)
    text = re.sub(r"(noise floor of|largest|cosine|leaves) \d+(\.\d+)?(e[-+]\d+)?", r"\1 N", text)
    return re.sub(r"\(\d+ of \d+ tensors differ\)|\d+ tensors agree", "TENSORS", text)


def assert_shown(block, answer, folder):
    """Every line that a document shows is a line of the answer, in this order."""
    lines = iter(settled(answer.replace(f"{folder}/", "")).splitlines())
    for shown in filter(str.strip, settled(block).splitlines()):
        assert shown in lines, f"not printed: {shown}\n{answer}"


def answers(document):
    return re.findall(r"^```text\n((?:MISMATCH|MATCH).*?)^```", document, re.M | re.S)


def test_the_readme_shows_the_answer_about_the_half_split_port(tmp_path):
    for name in ("reference.py", "port.py"):
        shutil.copy(ROOT / "examples" / "half_split" / name, tmp_path)
    commands = re.search(r"^```text\n(\$ lockstep record.*?)^```", README, re.M | re.S).group(1).splitlines()
    assert len(commands) == 3
    for command in commands:
        words = command.split()
        assert words[:2] == ["$", "lockstep"]
        words = [sys.executable if word == "python" else word for word in words[2:]]
        answer = lockstep(tmp_path, *words, status=int(words[0] == "compare"))
    (shown,) = answers(README)
    assert_shown(shown, answer, tmp_path)
    assert "rotary.style" in shown and "fix: " in shown


def test_the_hunt_goes_as_the_page_says(tmp_path):
    shutil.copy(ROOT / "examples" / "from_noise" / "port.py", tmp_path)
    port = tmp_path / "port.py"
    prompt = re.search(r'--prompt "([^"]+)"', PAGE).group(1)
    arguments = ("--prompt", prompt, "--negative-prompt", " ", "--seed", 7, "--steps", 4, "--python", sys.executable)
    lockstep(tmp_path, "reference", "generate", *arguments)
    shown, fixes = answers(PAGE), re.findall(r"^```diff\n(.*?)^```", PAGE, re.M | re.S)
    assert len(shown) == len(fixes) + 1 == 7
    for number, block in enumerate(shown):
        record = ("--quiet", "record", "--inputs", "--name", "port", "--", sys.executable, port)
        lockstep(tmp_path, *record, ROOT / "models" / "tiny", tmp_path / ".lockstep/latest/reference")
        answer = lockstep(tmp_path, "compare", "latest:reference", "latest:port", status=int(number < len(fixes)))
        assert_shown(block, answer, tmp_path)
        if number < len(fixes):
            lines = fixes[number].splitlines()
            old = "".join(line[1:] + "\n" for line in lines if line[0] == "-")
            new = "".join(line[1:] + "\n" for line in lines if line[0] == "+")
            source = port.read_text()
            assert source.count(old) == 1, old
            port.write_text(source.replace(old, new))
