"""The layer check itself: it must fail on what it forbids, or it proves nothing."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "check_layers.py"
LAYERS = "# comment\nbase:\ntensor: base\nio: tensor\nbackend: tensor\nops: backend\ncli: ops io\n"


def check(root):
    done = subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path):
    def write(files, layers=LAYERS):
        (tmp_path / "cmake").mkdir(exist_ok=True)
        (tmp_path / "cmake" / "layers.txt").write_text(layers)
        for name, text in files.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_downward_includes_pass(tree):
    status, text = check(
        tree(
            {
                "ops/add.cpp": '#include "backend/backend.h"\n#include "base/error.h"\n#include <vector>\n',
                "base/error.h": "",
            }
        )
    )
    assert status == 0 and "0 forbidden" in text


@pytest.mark.parametrize(
    ("file", "include", "why"),
    [
        ("tensor/tensor.h", '#include "io/npy.h"', "may not include 'io'"),  # upward
        ("io/npy.cpp", '#include "backend/backend.h"', "may not include 'backend'"),  # sideways
        ("base/error.cpp", '  #  include   "tensor/tensor.h"', "may not include 'tensor'"),  # odd spacing
        ("backend/cpu/gemm.cpp", '#include "backend/cuda/gemm.h"', "never see each other"),
        ("tensor/tensor.h", '#include "nowhere/x.h"', "is no layer"),
        ("stray/file.cpp", "", "is no layer of"),
    ],
)
def test_forbidden_includes_fail(tree, file, include, why):
    status, text = check(tree({file: include + "\n", "base/ok.h": ""}))
    assert status == 1 and why in text and file in text


def test_folders_of_a_layer_that_include_each_other_fail(tree):
    files = {
        "ops/a/x.h": '#include "ops/b/x.h"\n',
        "ops/b/x.h": '#include "ops/c/x.h"\n',
        "ops/c/x.cpp": "",
        "base/ok.h": "",
    }
    assert check(tree(files))[0] == 0
    status, text = check(tree(files | {"ops/c/x.cpp": '#include "ops/a/x.h"\n'}))
    assert status == 1 and "src/ops/c/x.cpp: 'ops/c' includes 'ops/a', which includes it in turn" in text


@pytest.mark.parametrize(
    "way",
    [
        'fmt::print("{}", x)',
        "std::cout << x",
        "std::cerr << x",
        "std::printf(x)",
        "fprintf(stderr, x)",
        "::dprintf(2, x)",
        "puts(x)",
        "std::fputs(x, stderr)",
        "fwrite(x, 1, 1, stdout)",
        "::write(STDOUT_FILENO, x, 1)",
        "::write(2, x, 1)",
        "write_fully(STDOUT_FILENO, x)",
        "perror(x)",
    ],
)
def test_other_ways_to_print_fail(tree, way):
    assert check(tree({"ops/say.cpp": f"void say(const char* x) {{ {way}; }}\n"}))[0] == 1
    assert "prints with" in check(tree({"ops/say.cpp": f"void say(const char* x) {{ {way}; }}\n"}))[1]
    assert (
        check(
            tree(
                {
                    "ops/say.cpp": 'void say() { print("{}", x); print_error("{}", x); file.write(1, x); snprintf(x, 1, x); }\n'
                }
            )
        )[0]
        == 0
    )


@pytest.mark.parametrize("way", ["::send(fd, x, 1, 0)", "::sendto(fd, x, 1, 0, to, 8)", "::sendmsg(fd, &x, 0)"])
def test_sends_that_raise_a_signal_fail(tree, way):
    status, text = check(tree({"ops/tell.cpp": f"void tell() {{ {way}; }}\n"}))
    assert status == 1 and "send_fully()" in text
    assert check(tree({"ops/tell.cpp": "void Line::send() { send_fully(fd_, x); line->send(x); }\n"}))[0] == 0


@pytest.mark.parametrize(
    "way", ["std::ifstream file(path)", "std::istringstream parts(text)", "std::ifstream in{path}"]
)
def test_streams_that_swallow_failures_fail(tree, way):
    status, text = check(tree({"ops/read.cpp": f"void read() {{ {way}; }}\n"}))
    assert status == 1 and "strict_file()" in text
    assert check(tree({"ops/read.cpp": "void read() { std::ifstream file = strict_file(path); }\n"}))[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "#ifdef __linux__",
        "#if defined(__APPLE__) && defined(__aarch64__)",
        "  #  elif defined(__GLIBC__)",
        "#include <sys/inotify.h>",
        "#include <linux/version.h>",
        "#include <mach/mach.h>",
        'const char* kFile = "/proc/self/exe";',
        "int fd = ::accept4(listener, nullptr, nullptr, 0);",
        "int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);",
        "extern char** environ;",
    ],
)
def test_what_one_system_alone_knows_fails(tree, line):
    status, text = check(tree({"ops/look.cpp": line + "\n"}))
    assert status == 1 and "src/ops/look.cpp: only one system knows" in text and "base/platform" in text
    files = {
        "base/platform/look_linux.cpp": line + "\n",
        "base/platform/look_macos.cpp": "",
        "ops/look.cpp": f"// {line}\n",
    }
    assert check(tree(files))[0] == 0


def test_a_form_for_one_system_without_the_other_fails(tree):
    status, text = check(tree({"base/platform/look_linux.cpp": ""}))
    assert status == 1 and "expected src/base/platform/look_macos.cpp beside it" in text


def test_a_list_out_of_order_is_refused(tree):
    status, text = check(tree({"base/ok.h": ""}, layers="tensor: base\nbase:\n"))
    assert status != 0 and "not listed above" in text


def test_this_repository_passes():
    status, text = check(SCRIPT.parent.parent)
    assert status == 0, text
