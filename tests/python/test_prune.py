"""`lockstep prune`: the copy holds what ran, the program does the same with it, and nothing else is ever written to."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from debug_service import PROGRAM, ROOT, Home, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

PACKAGE = {
    "__init__.py": "from .models.transformer import Block\n",
    "models/__init__.py": "",
    "models/transformer.py": '''"""A block."""
import functools
import os

def documented(function):
    if "Examples" not in (function.__doc__ or ""):
        raise ValueError("no examples")
    return function

def table():
    with open(os.path.join(os.path.dirname(__file__), "table.txt")) as file:
        return float(file.read())

class Block:
    def __init__(self):
        self.scale = table()

    def forward(self, x):
        from .rarely import bias
        return self.scale * x + bias()

    def never(self, a,
              b=2):
        """What nobody calls."""
        total = 0
        for i in range(b):
            total += a
        return total

    @documented
    def checked(self):
        """
        Examples:
            none
        """
        total = 1
        total += 1
        return total

    @functools.lru_cache()
    def decorated(self):
        value = 3
        return value

    def one_line(self): return 1
''',
    "models/rarely.py": "def bias():\n    return 0.5\n\n\ndef other():\n    a = 1\n    return a\n",
    "models/table.txt": "3.0",
    "models/unused.py": "def unused():\n    return 1\n" * 50,
    "models/unused_table.txt": "4.0",
    "schedulers/__init__.py": "x = 1\n",
}
SCRIPT = "import reference\nprint(reference.Block().forward(2.0))\n"


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    for name, text in PACKAGE.items():
        made.write(f"lib/reference/{name}", text)
    made.environment["PYTHONPATH"] = str(tmp_path / "lib")
    yield made
    made.close()


def prune(home, source, *words, check=True):
    script = home.write("port.py", source)
    done = home.run("--json", "prune", "--packages", "reference", *words, "--", sys.executable, script, check=check)
    return json.loads(done.stdout)


def fingerprint(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_whole_files_and_what_they_open(home):
    before = fingerprint(home.folder / "lib")
    into = home.folder / "pruned"
    document = prune(home, SCRIPT, "--into", into)
    kept = {
        "reference/__init__.py",
        "reference/models/__init__.py",
        "reference/models/transformer.py",
        "reference/models/rarely.py",
        "reference/models/table.txt",
    }
    assert files(into) == {*kept, "PRUNED.md"}
    assert document["output_equal"] and document["rounds"] == 1 and document["restored"] == []
    assert document["lines_after"] < document["lines_before"] / 2
    assert (into / "reference/models/transformer.py").read_text() == PACKAGE["models/transformer.py"]
    assert fingerprint(home.folder / "lib") == before
    assert "| `reference` | 4 | 6 |" in (into / "PRUNED.md").read_text()
    done = subprocess.run(
        [sys.executable, "port.py"],
        cwd=home.folder,
        env={**os.environ, "PYTHONPATH": str(into)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "6.5\n"


def test_a_dry_run_writes_nothing(home):
    document = prune(home, SCRIPT, "--dry-run", "--functions")
    assert document["dry_run"] and document["rounds"] == 0 and document["lines_after"] < document["lines_before"] / 2
    assert {file["path"] for file in document["files"]} == {
        "__init__.py",
        "models/__init__.py",
        "models/transformer.py",
        "models/rarely.py",
        "models/table.txt",
    }
    assert not list(home.folder.glob("*prun*"))
    assert (
        "would be kept"
        in home.run(
            "prune", "--packages", "reference", "--dry-run", "--", sys.executable, home.folder / "port.py"
        ).stdout
    )


def test_bodies_that_never_ran_name_their_old_place(home):
    into = home.folder / "pruned"
    prune(home, SCRIPT, "--into", into, "--functions")
    text = (into / "reference/models/transformer.py").read_text()
    place = home.folder / "lib/reference/models/transformer.py"
    line = PACKAGE["models/transformer.py"].splitlines().index("    def never(self, a,") + 1
    assert f"raise NotImplementedError('{place}:{line} never')" in text
    assert "total += a" not in text and "What nobody calls" not in text
    assert "Examples:" in text and "total += 1" not in text  # a decorator reads that docstring
    assert "def one_line(self): return 1" in text and "return self.scale * x + bias()" in text
    assert "a = 1" not in (into / "reference/models/rarely.py").read_text()


def test_what_is_still_needed_is_restored(home):
    # The second run takes another way: it asks for a module, for a file and for a body that the first did not.
    source = SCRIPT + (
        "import os\nif 'LOCKSTEP_PRUNE' in os.environ and os.environ['LOCKSTEP_PRUNE'] != 'watch':\n"
        "    import reference.models.unused, reference.models.rarely\n    assert reference.models.unused.unused() == 1\n"
        "    try:\n        reference.models.rarely.other()\n    except NotImplementedError:\n        pass\n"
        "    assert open(os.path.join(os.path.dirname(reference.models.__file__), 'unused_table.txt')).read() == '4.0'\n"
    )
    into = home.folder / "pruned"
    document = prune(home, source, "--into", into, "--functions")
    assert {
        "reference/models/unused.py",
        "reference/models/unused_table.txt",
        "reference/models/rarely.py:5 other",
    } <= set(document["restored"])
    assert "a = 1" in (into / "reference/models/rarely.py").read_text()
    assert document["output_equal"] and document["rounds"] > 1


def test_a_file_that_is_restored_whole_has_no_bodies_missing(home):
    # The copy fails where a checker's imports run, and is given the whole file back. What was cut from it before stood in
    # other lines, and `used` now stands in one of them.
    home.write(
        "lib/reference/models/checked.py",
        "import typing\nif typing.TYPE_CHECKING:\n    import json\n    import math\n    import re\n"
        "def used():\n    return 0.25\ndef never():\n    a = 1\n    return a\n",
    )
    source = SCRIPT + (
        "import typing\ntyping.TYPE_CHECKING = True\nimport reference.models.checked as checked\n"
        "print(checked.used())\n"
    )
    document = prune(home, source, "--into", home.folder / "pruned", "--functions")
    assert document["restored"] == ["reference/models/checked.py"] and document["rounds"] == 2


@pytest.mark.parametrize("framework", ["torch", "mlx"])
def test_proven_tensor_by_tensor(home, framework):
    pytest.importorskip(framework)
    imports = {
        "torch": "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nArray = torch.ones\n",
        "mlx": "import mlx.core as mx\nimport mlx.nn as nn\nmx.random.seed(0)\nArray = mx.ones\n",
    }[framework]
    call = {"torch": "forward", "mlx": "__call__"}[framework]
    net = f"{imports}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(8, 8)\n    def {call}(self, x):\n        return self.lin(x)\n    def unused(self):\n        a = 1\n        return a\n"
    home.write("lib/reference/__init__.py", "from .models.net import Net, Array\n")
    home.write("lib/reference/models/net.py", net)
    source = "import reference\nreference.Net()(reference.Array((2, 8)))\n"
    document = prune(home, source, "--into", home.folder / "pruned", "--functions")
    assert document["tensors_equal"] == 2
    # One that draws its weights anew each time cannot be proven, and says so.
    home.write(
        "lib/reference/models/net.py",
        net.replace(".manual_seed(0)", ".seed()").replace(
            "mx.random.seed(0)", "import time; mx.random.seed(time.time_ns() % 10**9)"
        ),
    )
    error = prune(home, source, "--into", home.folder / "again", check=False)["error"]
    assert "vary from run to run" in error["message"] and not (home.folder / "again").exists()


def test_a_copy_that_does_something_else_is_not_kept(home):
    source = "import reference, reference.models.transformer as t\nprint(len(t.__file__))\n"
    error = prune(home, source, "--into", home.folder / "pruned", check=False)["error"]
    assert "does not do the same" in error["message"]
    assert not list(home.folder.glob("*prun*"))


@pytest.fixture
def checkout(home):
    def git(*words):
        return subprocess.run(
            ["git", "-C", home.folder / "lib", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    home.write("lib/.gitignore", "__pycache__\n")
    home.write("lib/LICENSE", "free\n")
    git("init", "-q", "-b", "mine")
    git("add", ".")
    git("commit", "-qm", "all")
    return git


def test_a_new_branch_and_nothing_else(home, checkout):
    before = (
        checkout("rev-parse", "HEAD"),
        checkout("status", "--porcelain"),
        fingerprint(home.folder / "lib" / "reference"),
    )
    index = (home.folder / "lib/.git/index").read_bytes()
    document = prune(home, SCRIPT, "--branch", "pruned", "--functions")
    assert (
        checkout("rev-parse", "HEAD"),
        checkout("status", "--porcelain"),
        fingerprint(home.folder / "lib" / "reference"),
    ) == before
    assert len(index) == len((home.folder / "lib/.git/index").read_bytes())
    assert checkout("rev-parse", "pruned") == document["commit"] and checkout("rev-parse", "pruned^") == before[0]
    assert checkout("symbolic-ref", "HEAD") == "refs/heads/mine"
    listed = set(checkout("ls-tree", "-r", "--name-only", "pruned").splitlines())
    assert listed == {
        "LICENSE",
        "PRUNED.md",
        "reference/__init__.py",
        "reference/models/__init__.py",
        "reference/models/transformer.py",
        "reference/models/rarely.py",
        "reference/models/table.txt",
    }
    assert "exists" in prune(home, SCRIPT, "--branch", "pruned", check=False)["error"]["message"]
    assert "no name for a branch" in prune(home, SCRIPT, "--branch", "a..b", check=False)["error"]["message"]


def test_uncommitted_work_is_refused(home, checkout):
    home.write("lib/reference/models/unused.py", "changed = True\n")
    assert "uncommitted work" in prune(home, SCRIPT, "--branch", "pruned", check=False)["error"]["message"]
    assert checkout("branch", "--list", "pruned") == ""


def test_hostile_names_and_links_write_nothing_outside(home):
    outside = home.write("outside/secret.txt", "do not touch")
    package = home.folder / "lib/reference"
    (package / "models/linked.txt").symlink_to(outside)
    (package / "linked_folder").symlink_to(home.folder / "outside")
    (package / "models/inner_link.txt").symlink_to("table.txt")
    (package / "models/new\nline `x` <b>.txt").write_text("odd")
    reads = "".join(
        f"open(os.path.join(base, {name!r})).read()\n"
        for name in (
            "models/linked.txt",
            "linked_folder/secret.txt",
            "models/inner_link.txt",
            "models/new\nline `x` <b>.txt",
            "../reference/models/table.txt",
        )
    )
    # Code that says it lies elsewhere, and a program that puts a link into the copy while it is proven.
    source = SCRIPT + (
        "import os\nbase = os.path.dirname(reference.__file__)\nif os.environ['LOCKSTEP_PRUNE'] != 'watch':\n"
        f"    os.path.exists(os.path.join(base, 'models/way')) or os.symlink({str(home.folder / 'outside')!r}, os.path.join(base, 'models/way'))\n"
        "    import reference.models.way.evil\nelse:\n"
        + "".join("    " + line + "\n" for line in reads.replace("new\nline", "new\\nline").splitlines())
        + "exec(compile('def f():\\n    return 1\\nf()', os.path.join(base, '../../../outside/planted.py'), 'exec'))\n"
    )
    home.write("lib/reference/models/way/__init__.py", "")
    home.write("lib/reference/models/way/evil.py", "")
    before = fingerprint(home.folder / "outside")
    document = prune(home, source, "--into", home.folder / "pruned", check=False)
    assert fingerprint(home.folder / "outside") == before
    assert "a link or a file stands in its way" in document["error"]["message"]
    assert not list(home.folder.glob("*prun*"))
    document = prune(
        home,
        source.replace("import reference.models.way.evil", "pass").replace("os.symlink(", "max("),
        "--into",
        home.folder / "pruned",
    )
    assert sorted(map(os.path.basename, document["left_links"])) == ["linked.txt", "secret.txt"]
    kept = files(home.folder / "pruned")
    assert "reference/models/inner_link.txt" in kept and not any(
        "linked" in name or "secret" in name or "planted" in name for name in kept
    )
    assert not any(path.is_symlink() for path in (home.folder / "pruned").rglob("*"))
    assert "\n" not in [line for line in (home.folder / "pruned/PRUNED.md").read_text().splitlines() if "`x`" in line]


def test_kill_in_the_middle_loses_nothing(home):
    before = fingerprint(home.folder / "lib")
    marker = home.folder / "reached"
    source = (
        SCRIPT
        + f"import os, signal\nif os.environ['LOCKSTEP_PRUNE'] != 'watch':\n    open({str(marker)!r}, 'w').close()\n    signal.pause()\n"
    )
    script = home.write("port.py", source)
    running = subprocess.Popen(
        [PROGRAM, "prune", "--packages", "reference", "--into", home.folder / "pruned", "--", sys.executable, script],
        cwd=home.folder,
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(marker.exists)
    running.send_signal(signal.SIGKILL)
    running.wait()
    home.run("kill-all", "--yes", "--grace", "0")
    assert not (home.folder / "pruned").exists() and fingerprint(home.folder / "lib") == before
    left = list(home.folder.glob(".pruned.pruning-*"))
    assert len(left) == 2, "the unfinished copy and what describes it"
    (copy,) = (path for path in left if path.is_dir())
    copy.with_name(f"{copy.name}.json.tmp-1-2").write_text("{")  # as a kill in the middle of writing leaves it
    mine = home.folder / ".pruned.pruning-notes"  # somebody's own
    mine.mkdir()
    home.write("port.py", SCRIPT)
    assert prune(home, SCRIPT, "--into", home.folder / "pruned")["output_equal"]
    assert list(home.folder.glob(".pruned.pruning-*")) == [mine], "the next one has tidied up"


def test_two_at_once_do_not_take_each_others_copy_for_left_behind(home):
    marker, go = home.folder / "reached", home.folder / "go"
    os.mkfifo(go)
    source = (
        SCRIPT
        + f"import os\nif os.environ['LOCKSTEP_PRUNE'] != 'watch' and not os.path.exists({str(marker)!r}):\n    open({str(marker)!r}, 'w').close()\n    open({str(go)!r}).read()\n"
    )
    script = home.write("port.py", source)
    command = [
        PROGRAM,
        "--json",
        "prune",
        "--packages",
        "reference",
        "--into",
        home.folder / "pruned",
        "--",
        sys.executable,
        script,
    ]
    first = subprocess.Popen(
        command, cwd=home.folder, env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    wait_until(marker.exists)
    assert prune(home, source, "--into", home.folder / "pruned")["output_equal"]
    go.write_text("")
    assert "could not be made" in json.loads(first.communicate()[0])["error"]["message"], (
        "its copy was there to the end, its name was taken"
    )
    assert not list(home.folder.glob(".pruned.pruning-*"))


def test_a_progress_bar_is_not_what_a_program_prints(home):
    clock = "import sys, time\nsys.stderr.write(f'\\r 1/2 {time.time_ns()}')\nsys.stderr.write(f'\\r 2/2 {time.time_ns()}\\n')\n"
    assert prune(home, SCRIPT + clock, "--into", home.folder / "pruned")["output_equal"]
    # What it leaves standing is: without tensors there is nothing else to go by.
    said = prune(home, SCRIPT + "import time\nprint(time.time_ns())\n", "--into", home.folder / "other", check=False)
    assert "vary from run to run" in said["error"]["message"]


def test_the_two_streams_of_a_program_come_in_any_order(home):
    """A bar on stderr that is read around a line on stdout: the line is there all the same."""
    source = SCRIPT + (
        "import os, sys, time\n"
        "def seen(text):\n"
        "    log = os.path.join(os.environ['LOCKSTEP_RUN'], 'output.log')\n"
        "    while text not in open(log).read():\n"
        "        time.sleep(0.001)\n"
        "first = os.environ['LOCKSTEP_PRUNE'] == 'watch'\n"
        "sys.stderr.write(f'\\r 1/2 {time.time_ns()}')\n"
        "sys.stderr.flush()\n"
        "if first: sys.stderr.write('\\r 2/2\\n')\n"
        "seen('2/2' if first else '1/2')\n"
        "print('done', flush=True)\n"
        "seen('done')\n"
        "if not first: sys.stderr.write('\\r 2/2\\n')\n"
    )
    assert prune(home, source, "--into", home.folder / "pruned")["output_equal"]


def test_a_line_that_names_a_file_of_the_copy_is_the_same_line(home):
    """Whatever it is sorted among: in the copy's folder, which begins with a point, it would come before `alike`."""
    source = SCRIPT + "print(reference.__file__)\nprint(__file__.rpartition('/')[0] + '/alike')\n"
    assert prune(home, source, "--into", home.folder / "pruned")["output_equal"]


def test_refusals(home):
    (home.folder / "there").mkdir()
    assert "exists" in prune(home, SCRIPT, "--into", home.folder / "there", check=False)["error"]["message"]
    assert (
        "does not import"
        in json.loads(
            home.run(
                "--json",
                "prune",
                "--dry-run",
                "--packages",
                "nothing",
                "--",
                sys.executable,
                home.folder / "port.py",
                check=False,
            ).stdout
        )["error"]["message"]
    )
    assert "place for the copy" in prune(home, SCRIPT, check=False)["error"]["message"]
    assert (
        "by itself" in prune(home, "raise SystemExit(3)", "--into", home.folder / "x", check=False)["error"]["message"]
    )


def test_over_rest(home):
    home.ensure()
    script = home.write("port.py", SCRIPT)
    answer = home.call(
        "prune",
        program=[sys.executable, str(script)],
        cwd=str(home.folder),
        packages=["reference"],
        into=str(home.folder / "pruned"),
        functions=True,
    )
    assert answer["output_equal"] and (home.folder / "pruned/reference/models/rarely.py").exists()


def test_qwen_image_with_a_twentieth_of_its_libraries(home):
    pytest.importorskip("diffusers")
    source = f"""
import sys, torch
torch.set_num_threads(1)
import diffusers.utils.logging, transformers.utils.logging
diffusers.utils.logging.disable_progress_bar()  # a line that is written behind a bar comes and goes with the bar
transformers.utils.logging.disable_progress_bar()
from diffusers import QwenImagePipeline
pipeline = QwenImagePipeline.from_pretrained({str(ROOT / "models" / "tiny")!r}, dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
picture = pipeline("a red circle", num_inference_steps=2, width=64, height=64, generator=torch.Generator().manual_seed(0)).images[0]
picture.save(sys.argv[1])
"""
    script = home.write("generate.py", source)
    into = home.folder / "pruned"
    done = home.run(
        "--json",
        "prune",
        "--functions",
        "--into",
        into,
        "--",
        sys.executable,
        script,
        home.folder / "a.png",
        timeout=600,
    )
    document = json.loads(done.stdout)
    assert {package["name"] for package in document["packages"]} == {"diffusers", "transformers"}
    assert document["lines_after"] <= 0.05 * document["lines_before"]
    assert document["tensors_equal"] > 100 and document["output_equal"]
    subprocess.run(
        [sys.executable, script, home.folder / "b.png"],
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
    )
    assert (home.folder / "a.png").read_bytes() == (home.folder / "b.png").read_bytes()
