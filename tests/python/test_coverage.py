"""`lockstep coverage`: what ran is told, what did not is told as such, and the program does not notice."""

import json
import pathlib
import subprocess
import sys

import pytest
from debug_client import pythons
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
_PYTHONS = {f"{major}.{minor}": path for (major, minor), path in sorted(pythons().items())}

SCRIPT = """\
import multiprocessing, os, sys, threading

def hot(x):
    return x + 1

def never():
    return 3

class Block:
    scale = 2

    def forward(self, x):
        for i in range(1000):
            x = hot(x)
        if x < 0:
            x = 0
        return x

def numbers():
    for i in range(5):
        yield i

def work(n):
    for i in range(n):
        hot(i)

if __name__ == "__main__":
    print(Block().forward(0), list(numbers()), sys.argv[1:])
    thread = threading.Thread(target=work, args=(7,))
    thread.start()
    thread.join()
    child = multiprocessing.get_context("fork").Process(target=work, args=(11,))
    child.start()
    child.join()
    sys.stderr.write("done\\n")
"""


def run(tmp_path, *words, status=0):
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def covered(tmp_path, *words, script=SCRIPT, arguments=(), status=0, python=sys.executable):
    (tmp_path / "port.py").write_text(script, "utf-8")
    done = run(tmp_path, "--json", "coverage", *words, "--", python, "port.py", *arguments, status=status)
    answer = json.loads(done.stdout)
    (own,) = [file for file in answer["files"] if file["path"] == str(tmp_path / "port.py")]
    return answer, {function["name"]: function for function in own["functions"]}, done


@pytest.mark.parametrize("python", _PYTHONS.values(), ids=_PYTHONS)
def test_calls_are_counted_in_threads_and_children(tmp_path, python):
    answer, functions, done = covered(tmp_path, arguments=["a b"], python=python)
    functions = {name.rpartition(".")[2]: function for name, function in functions.items()}  # 3.10 knows no more
    calls = {name: function["calls"] for name, function in functions.items()}
    assert calls == {"<module>": 1, "hot": 1018, "never": 0, "forward": 1, "numbers": 1, "work": 2}
    assert functions["hot"]["line"] == 3 and answer["processes"] == 2
    assert "1000 [0, 1, 2, 3, 4] ['a b']" in done.stderr and "done\n" in done.stderr
    assert not [file for file in answer["files"] if "lockstep" in pathlib.Path(file["path"]).parts[-3:]], (
        "we are not the program"
    )


@pytest.mark.parametrize("python", _PYTHONS.values(), ids=_PYTHONS)
def test_lines_are_told(tmp_path, python):
    _, functions, _ = covered(tmp_path, "--lines", python=python)
    forward = functions.get("Block.forward") or functions["forward"]
    assert forward["lines"] == [13, 14, 15, 16, 17] and forward["lines_run"] == [13, 14, 15, 17]
    assert functions["never"]["lines"] == [7] and functions["never"]["lines_run"] == []
    assert 10 in functions["<module>"]["lines_run"], "the body of a class runs with its module"


LATE = """\
def known(x):
    y = x + 1
    return y

def late(x):
    if x == 900:
        x = known(x)
    return x

def stream():
    for i in range(600):
        yield i
    yield -1

for i in range(1000):
    known(i)
    late(i)
list(stream())
late(900)
"""


@pytest.mark.parametrize("python", _PYTHONS.values(), ids=_PYTHONS)
def test_a_line_that_first_runs_late_is_seen(tmp_path, python):
    """Tracing ends for a function when all of its lines were seen, and not before."""
    _, functions, _ = covered(tmp_path, "--lines", script=LATE, python=python)
    assert functions["late"]["lines_run"] == functions["late"]["lines"] == [6, 7, 8]
    assert functions["known"]["lines_run"] == [2, 3] and functions["known"]["calls"] == 1002
    assert functions["stream"]["lines_run"] == functions["stream"]["lines"] == [11, 12, 13]
    assert functions["<module>"]["lines_run"] == [1, 5, 10, 15, 16, 17, 18, 19]


def test_a_program_that_fails_is_told_until_there(tmp_path):
    _, functions, done = covered(tmp_path, script="def f():\n    raise ValueError('x')\nf()\n", status=3)
    assert functions["f"]["calls"] == 1 and "ValueError: x" in done.stderr and "failed" in done.stderr
    _, functions, _ = covered(tmp_path, script="import os\ndef f():\n    os._exit(7)\nf()\n", status=3)
    assert functions["f"]["calls"] == 1


def test_components_packages_and_namesakes(tmp_path):
    package = tmp_path / "site-packages" / "port"
    for name, source in {
        "__init__.py": "",
        "text_encoder/qwen2_5_vl.py": "def encode():\n    return 1\n",
        "text_encoder/qwen2_vl.py": "def encode():\n    return 2\n",
        "text_encoder/__init__.py": "",
        "vae/decoder.py": "def decode():\n    return 1\n",
        "vae/__init__.py": "",
        "scheduler.py": "def step():\n    return 1\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(source)
    script = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nfrom port import scheduler\nfrom port.text_encoder import qwen2_5_vl\nfrom port.vae import decoder\nqwen2_5_vl.encode()\ndecoder.decode()\n[scheduler.step() for _ in range(20)]\n"
    answer, _, _ = covered(tmp_path, script=script)
    components = {
        file["path"].split("site-packages/port/")[1]: file["component"]
        for file in answer["files"]
        if file["package"] == "port"
    }
    assert (
        components["text_encoder/qwen2_5_vl.py"] == "text encoder"
        and components["vae/decoder.py"] == "vae"
        and components["scheduler.py"] == "scheduler"
    )
    assert [
        (pathlib.Path(like["used"]).name, [pathlib.Path(path).name for path in like["unused"]])
        for like in answer["like_named"]
    ] == [("qwen2_5_vl.py", ["qwen2_vl.py"])]
    shown = run(tmp_path, "coverage", "--run", "latest", "--markdown", "ran.md", "--html", "ran.html").stdout
    assert "qwen2_vl.py" in shown and "a breakpoint stops often" in shown
    for name in ("ran.md", "ran.html"):
        text = (tmp_path / name).read_text()
        assert "qwen2_5_vl.py" in text and "step" in text and "20" in text


def test_names_of_the_program_are_only_shown(tmp_path):
    script = "def f(): pass\nf.__code__ = f.__code__.replace(co_name='<img src=x onerror=1>\\x1b[31m|', **({'co_qualname': '<img src=x onerror=1>\\x1b[31m|'} if hasattr(f.__code__, 'co_qualname') else {}))\ndef g(): pass\ng.__code__ = g.__code__.replace(co_name='g<img>\\x1b[31m|`', **({'co_qualname': 'g<img>\\x1b[31m|`'} if hasattr(g.__code__, 'co_qualname') else {}))\nf()\nfor _ in range(20): g()\n"
    covered(tmp_path, script=script)
    shown = run(tmp_path, "coverage", "--run", "latest", "--markdown", "ran.md", "--html", "ran.html").stdout
    assert "\x1b" not in shown and "g<img>\\x1b[31m" in shown
    page, text = (tmp_path / "ran.html").read_text(), (tmp_path / "ran.md").read_text()
    assert "<img" not in page and "g&lt;img&gt;" in page and "\x1b" not in page
    assert "g<img" not in text and "\x1b" not in text


def test_record_counts_too(tmp_path):
    (tmp_path / "port.py").write_text("def f():\n    return 1\nf()\n")
    run(tmp_path, "record", "--coverage", "--name", "both", "--", sys.executable, "port.py")
    answer = json.loads(run(tmp_path, "--json", "coverage", "--run", "latest:both").stdout)
    assert any(
        function["name"] == "f" and function["calls"] == 1 for file in answer["files"] for function in file["functions"]
    )


def test_what_cannot_be_shown_is_said(tmp_path):
    assert "lockstep coverage -- python" in run(tmp_path, "coverage", status=2).stderr
    (tmp_path / "port.py").write_text("pass\n")
    run(tmp_path, "record", "--name", "plain", "--", sys.executable, "port.py")
    assert "record --coverage" in run(tmp_path, "coverage", "--run", "latest:plain", status=2).stderr
    damaged = next((tmp_path / "home" / "runs").iterdir()) / "coverage"
    damaged.mkdir()
    (damaged / "1.jsonl").write_text(
        '{"lines": 3, "modules": 4, "packages": [1], "cwd": []}\n{"file": 1}\n[1,2]\n[1,"f",1,-1,0,[]]\n[[[\n'
    )
    assert json.loads(run(tmp_path, "--json", "coverage", "--run", "latest:plain").stdout)["processes"] == 1
