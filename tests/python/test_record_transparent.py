"""`lockstep record` in front of a program changes nothing of it: what it prints, how it ends, what it says when it fails."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

TIMES = 5  # each: what depends on the order of threads or on a signal's moment does not show at once

PROGRAMS = {
    "nothing": "",
    "what Python is told of buffering": "import os, sys; print(os.environ.get('PYTHONUNBUFFERED'), sys.stdout.write_through)",
    "prints that are lost": "import os; print('held back'); os._exit(0)",
    "prints": "print('hello'); print('world')",
    "prints without a line's end": "print('hello', end='')",
    "to stderr": "import sys; sys.stderr.write('oops\\n')",
    "bytes that are no text": "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "a large output": "print('x' * 300_000)",
    "exit 0": "import sys; sys.exit(0)",
    "exit 1": "import sys; sys.exit(1)",
    "exit 2": "import sys; sys.exit(2)",
    "exit 3": "import sys; sys.exit(3)",
    "exit 77": "import sys; sys.exit(77)",
    "exit 125": "import sys; sys.exit(125)",
    "exit 255": "import sys; sys.exit(-1)",
    "exit with words": "import sys; sys.exit('because')",
    "_exit": "import os; print('kept', flush=True); os._exit(9)",
    "_exit 0 in the middle": "import os\nfor i in range(3): print(i, flush=True)\nos._exit(0)",
    "an exception": "def f(): raise ValueError('no')\nf()",
    "a chain of exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('then') from e",
    "an exception group": "import sys\nif sys.version_info >= (3, 11):\n    exec(\"raise ExceptionGroup('several', [ValueError(1), TypeError(2)])\")\nraise ValueError(1)",
    "a syntax error": "def f(:\n    pass",
    "an import that fails": "import no_such_module_of_anybody",
    "recursion": "def f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError:\n    print('deep')",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "SIGUSR1 handled": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: print('caught'))\nos.kill(os.getpid(), signal.SIGUSR1)",
    "abort": "import os; print('before', flush=True); os.abort()",
    "an alarm": "import signal, time\nrang = []\nsignal.signal(signal.SIGALRM, lambda *a: rang.append(print('rang')))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile not rang:\n    time.sleep(0.01)",
    "a thread": "import threading\nt = threading.Thread(target=lambda: print('in a thread'))\nt.start(); t.join()",
    "a thread that fails": "import threading\ndef work(): raise ValueError('in a thread')\nt = threading.Thread(target=work, name='T')\nt.start(); t.join()\nprint('on')",
    "a daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('done')",
    "fork": "import os, sys\npid = os.fork()\nif pid == 0:\n    print('child', flush=True); os._exit(4)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "a fork that exits normally": "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(6)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "a subprocess": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(1); raise SystemExit(5)'], capture_output=True).returncode)",
    "multiprocessing": "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, range(5)))",
    "atexit": "import atexit\natexit.register(print, 'last')\nprint('first')",
    "stdin": "import sys; print(sys.stdin.read().upper())",
    "arguments and names": "import sys; print(sys.argv, __name__, __file__.rsplit('/', 1)[1])",
    "modules that are there": "import sys; print('numpy' in sys.modules, 'torch' in sys.modules)",
    "warnings": "import warnings; warnings.warn('beware')",
    "its own excepthook": "import sys\nsys.excepthook = lambda kind, error, traceback: print('mine', kind.__name__)\nraise ValueError",
    "traceback printed by itself": "import traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()",
    "unraisable": "class A:\n    def __del__(self): raise ValueError('late')\na = A()\ndel a\nprint('on')",
}

WITH_TORCH = {
    "a layer that fails": "import torch\nclass M(torch.nn.Module):\n    def __init__(self):\n        super().__init__(); self.l = torch.nn.Linear(2, 3)\n    def forward(self, x): return self.l(x)\nm = M()\nm(torch.ones(1, 2))\nm(torch.ones(1, 5))",
    "a DataLoader": "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\ntorch.manual_seed(0)\nif __name__ == '__main__':\n    for (x,) in DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2): print(x.tolist())",
}


def outcome(words, folder):
    environment = {**os.environ, "LOCKSTEP_HOME": str(folder / "home"), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # most callers do not set it
    done = subprocess.run(words, cwd=folder, env=environment, input=b"typed\n", capture_output=True, timeout=120)
    stderr = b"".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith(b"lockstep: "))
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode  # as a shell says it
    return status, done.stdout, re.sub(rb"0x[0-9a-f]+|\b\d{4,}\b", b"N", stderr)


def same_with_and_without(source, folder, times):
    (folder / "program.py").write_text(source)
    plain = outcome([sys.executable, "program.py"], folder)
    for _ in range(times):
        assert outcome([PROGRAM, "record", "--", sys.executable, "program.py"], folder) == plain


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_is_the_same(program, tmp_path):
    same_with_and_without(PROGRAMS[program], tmp_path, TIMES)


@pytest.mark.parametrize("program", WITH_TORCH)
def test_a_program_with_torch_is_the_same(program, tmp_path):
    pytest.importorskip("torch")
    same_with_and_without(WITH_TORCH[program], tmp_path, 1)


def test_there_are_forty():
    assert len(PROGRAMS) + len(WITH_TORCH) >= 40


OWN = {
    "no program": (["record"], "program is required"),
    "a program that is not there": (["record", "--", "no_such_program_of_anybody"], "No such file"),
    "a word that is no option": (["record", "--nonsense", "--", "true"], "nonsense"),
    "a budget that is none": (["record", "--budget", "much", "--", "true"], "budget"),
    "a reference that is not there": (["record", "--reference", "none", "--", "true"], "none"),
}


@pytest.mark.parametrize("way", OWN)
def test_its_own_failures_are_125_in_words(way, tmp_path):
    words, said = OWN[way]
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 125 and done.stderr.startswith("lockstep: ") and said in done.stderr, done.stderr


def test_a_signal_that_ends_the_program_is_in_its_run(tmp_path):
    (tmp_path / "program.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "--json", "record", "--", sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128 + signal.SIGTERM and '"status":"killed"' in done.stdout.replace(" ", "")
