"""The Python package where Python is as on a Mac: without the names that only Linux's has, and without /proc."""

import ast
import json
import pathlib
import subprocess
import sys
import sysconfig

import pytest
from debug_service import PROGRAM, Home
from program import ROOT

PACKAGE = ROOT / "python" / "lockstep"
# What CPython's documentation gives to Linux and not to macOS.
LINUX_NAMES = {
    "os": {
        *("eventfd", "eventfd_read", "eventfd_write", "memfd_create", "pidfd_open", "pipe2", "splice", "sendfile"),
        *(
            "copy_file_range",
            "posix_fadvise",
            "posix_fallocate",
            "getrandom",
            "setns",
            "unshare",
            "getxattr",
            "setxattr",
        ),
        *(
            "listxattr",
            "removexattr",
            "sched_getaffinity",
            "sched_setaffinity",
            "sched_setscheduler",
            "sched_getscheduler",
        ),
        *(
            "sched_getparam",
            "sched_setparam",
            "sched_rr_get_interval",
            "getresuid",
            "setresuid",
            "getresgid",
            "setresgid",
        ),
        *("process_cpu_count", "P_PIDFD", "O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "fdatasync"),
    },
    "select": {"epoll"},
    "signal": {"sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGPOLL", "pidfd_send_signal"},
    "socket": {"SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_NOSIGNAL", "SO_PEERCRED", "AF_NETLINK", "AF_VSOCK"},
    "mmap": {"MAP_POPULATE", "MAP_ANON_HUGE"},
    "fcntl": {"F_SETPIPE_SZ", "F_ADD_SEALS", "F_OFD_SETLK"},
    "resource": {"prlimit"},
    "time": {"CLOCK_BOOTTIME"},
}
LINUX_PATHS = ("/proc", "/sys/", "/dev/shm")


def faults_of(source):
    """Linux-only names and paths, but those inside a `try` that goes on without them."""
    found = []

    def visit(node, handled):
        if isinstance(node, ast.Try):
            caught = {
                name.id
                for handler in node.handlers
                if handler.type
                for name in ast.walk(handler.type)
                if isinstance(name, ast.Name)
            }
            for child in node.body:
                visit(child, handled | caught)
            for child in [*node.handlers, *node.orelse, *node.finalbody]:
                visit(child, handled)
            return
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LINUX_NAMES.get(node.value.id, ()) and "AttributeError" not in handled:
                found.append(f"{node.lineno}: {node.value.id}.{node.attr}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(LINUX_PATHS):
            if "OSError" not in handled:
                found.append(f"{node.lineno}: {node.value}")
        for child in ast.iter_child_nodes(node):
            visit(child, handled)

    visit(ast.parse(source), frozenset())
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_leans_on_linux(path):
    assert faults_of(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.memfd_create('x')",
        "try:\n    os.eventfd(0)\nexcept OSError:\n    pass",
        "open('/proc/self/stat')",
        "try:\n    pass\nexcept OSError:\n    open('/dev/shm/x')",
        "open(f'/proc/{pid}/maps')",
        "def f(pid):\n    return select.epoll()",
    ],
)
def test_the_check_sees_what_it_forbids(source):
    assert faults_of(source)


AS_ON_A_MAC = f"""
import sys

def look_like_a_mac():
    import importlib
    for module, names in {LINUX_NAMES!r}.items():
        try:
            module = importlib.import_module(module)
        except ImportError:
            continue
        for name in names:
            if hasattr(module, name):
                delattr(module, name)

    def refuse(event, arguments):
        if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith({LINUX_PATHS!r}):
            raise FileNotFoundError(2, "a Mac has no such file", arguments[0])

    sys.addaudithook(refuse)

look_like_a_mac()
"""


@pytest.fixture(scope="module")
def mac_python(tmp_path_factory):
    """An environment over the one the tests run in, whose interpreters forget Linux before anything of ours is imported."""
    folder = tmp_path_factory.mktemp("mac")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    packages = pathlib.Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    (packages / "as_on_a_mac.py").write_text(AS_ON_A_MAC)
    (packages / "as_on_a_mac.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport as_on_a_mac\n")
    told = subprocess.run(
        [
            python,
            "-c",
            "import os; print(hasattr(os, 'memfd_create'), os.path.basename(os.getcwd())); open('/proc/self/stat')",
        ],
        capture_output=True,
        text=True,
    )
    assert told.stdout.startswith("False") and "a Mac has no such file" in told.stderr
    return str(python)


@pytest.fixture
def home(tmp_path, mac_python):
    made = Home(tmp_path)
    made.python = mac_python
    yield made
    made.close()


needs_program = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
PORT = """import torch
torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.last = torch.nn.Linear(256, 256)

    def forward(self, x):
        scale = 1.0
        return self.last(torch.relu(self.first(x)) * scale)

with torch.no_grad():
    y = Net()(torch.randn(64, 256))
print("sum", round(float(y.sum()), 3))
"""


@needs_program
def test_a_program_is_recorded(home):
    pytest.importorskip("torch")
    for name in ("one", "two"):
        home.run("record", "--inputs", "--name", name, "--", home.python, home.write("port.py", PORT))
    answer = json.loads(home.run("--json", "compare", "latest:one", "latest:two").stdout)
    assert answer["verdict"].upper() == "MATCH" and answer["compared"] > 4, answer


@needs_program
def test_a_program_is_debugged(home):
    home.start(home.write("counts.py", "total = 0\nfor step in range(3):\n    total += step\nprint(total)\n"))
    home.debug("break", "counts.py:3")
    home.debug("continue")
    assert home.debug("eval", "step")["value"]["value"] == 0
    home.debug("clear")
    assert home.debug("continue")["end"]["how"] == "finished" and home.debug("log")["lines"] == ["3"]


@needs_program
def test_values_of_twins_go_through_the_pipe(home):
    """There is no memory that both can open by a name of /proc; what is found is the same."""
    pytest.importorskip("torch")
    reference, candidate = home.write("a.py", PORT), home.write("b.py", PORT.replace("scale = 1.0", "scale = 1.1"))
    home.debug("twin", "start", reference, candidate, "--python", home.python)
    found = home.debug("twin", "continue", "--until-divergence")
    while any(found[side]["state"] == "running" for side in ("reference", "candidate")):
        found = home.debug("twin", "wait")
    stop = found["candidate"]["stop"]
    assert stop["reason"] == "divergence" and "last" in stop["description"], stop
    home.debug("twin", "terminate")
