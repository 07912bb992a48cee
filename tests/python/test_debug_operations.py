"""Each operation of `lockstep debug` with each of its options, and what the debugger of the seeds got wrong."""

import json
import pathlib
import sys

import pytest
from debug_service import PROGRAM, ROOT, Home, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

LOOP = """\
def work(n):
    scale = n * 10
    return scale

total = 0
for i in range(6):
    total += work(i)
print("total", total)
"""

CHECKPOINTS = """\
import numpy as np
from lockstep import debug_checkpoint

def block(i):
    hidden = np.full((2, 3), float(i), np.float32)
    debug_checkpoint("block_out", hidden=hidden, context={"block": i}, skip=i == 4)
    after = i
    return hidden

for i in range(6):
    block(i)
print("done")
"""


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    made.environment["PYTHONPATH"] = str(ROOT / "python")
    yield made
    made.close()


def line(answer):
    return answer["stop"]["location"]["line"]


def value(home, expression, *words):
    return home.debug("eval", expression, *words)["value"]["value"]


def test_a_module_with_its_own_arguments(home):
    home.write("package/__init__.py", "")
    home.write("package/main.py", "import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    began = home.debug("start", "--python", sys.executable, "-m", "package.main", "--name", "x", "-v")
    assert began["program"] == "-m package.main" and began["arguments"] == ["--name", "x", "-v"]
    assert line(began) == 1 and began["output"] in home.run("debug", "status", "--json").stdout
    home.debug("continue")
    assert home.debug("log")["lines"] == ["__main__ package ['--name', 'x', '-v']"]


def test_the_program_has_its_own_environment_folder_and_python(home):
    (home.folder / "elsewhere").mkdir()
    script = home.write(
        "looks.py",
        "import os, sys\nprint(os.environ['COLOUR'], os.getcwd(), sys.executable, sorted(k for k in os.environ if k.startswith('LOCKSTEP_AGENT')))\n",
    )
    home.start(script, options=["--run", "--env", "COLOUR=green", "--cwd", "elsewhere"])
    home.debug("wait")
    assert home.debug("log")["lines"] == [f"green {home.folder / 'elsewhere'} {sys.executable} []"]
    home.environment["VIRTUAL_ENV"] = str(
        pathlib.Path(sys.prefix)
    )  # the active environment, where no --python is given
    home.debug("start", "--run", "--env", "COLOUR=blue", str(script))
    home.debug("wait")
    assert home.debug("log")["lines"][0].split()[2].startswith(sys.prefix)


def test_a_missing_module_and_a_missing_name_are_told_with_what_helps(home):
    home.start(home.write("work.py", "import no_such_library_at_all\n"))
    stop = home.debug("continue")
    assert (
        stop["stop"]["exception"]["type"] == "ModuleNotFoundError"
        and f"runs in {home.python}; another: debug start --python" in stop["hint"]
    )
    assert home.error("eval", "nothing")["message"].endswith(
        "NameError: name 'nothing' is not defined; try vars, which lists the names known here"
    )
    assert home.error("eval", "1 +")["message"].endswith("(line 1, column 4): 1 +")
    assert home.error("stack", "--thread", "1")["message"].endswith("thread 1 is not stopped; try threads, pause")


def test_every_option_of_break(home):
    home.start(home.write("loop.py", LOOP))
    assert home.debug("break", "work", "--once")["breakpoint"]["kind"] == "function"
    assert home.debug("break", "return scale", "--hits", "3")["breakpoint"]["kind"] == "text"
    logged = home.debug("break", "loop.py:2", "--log", "f'n is {n}'")["breakpoint"]["id"]
    assert home.debug("continue")["stop"]["location"]["function"] == "work"
    assert line(home.debug("continue")) == 3 and value(home, "n") == 2
    assert home.debug("remove", "return scale")["removed"]
    assert home.debug("continue")["state"] == "ended"
    breaks = {one["id"]: one for one in home.debug("breaks")["breakpoints"]}
    assert breaks[logged]["hit_count"] == 6
    told = [
        entry["text"]
        for entry in home.debug("trace", "show", "--limit", "1000")["lines"]
        if entry["kind"] == "output" and entry.get("category") == "log"
    ]
    assert told == [f"n is {i}" for i in range(6)]


def test_a_tensor_is_recorded_without_stopping(home):
    np = pytest.importorskip("numpy")
    home.start(
        home.write(
            "arrays.py",
            "import numpy as np\nfor i in range(3):\n    x = np.full((2, 2), i, np.float32)\n    y = x * 2\nprint('done')\n",
        )
    )
    home.debug("break", "arrays.py:4", "--capture", "x_before=x")
    assert home.debug("continue")["state"] == "ended"
    found = sorted((home.home / "runs").glob("*/tensors/x_before*.npy"))
    assert len(found) == 3 and sorted(float(np.load(file).max()) for file in found) == [0.0, 1.0, 2.0]


def test_a_condition_that_raises_stops_once_and_shows_the_error(home):
    home.start(home.write("loop.py", LOOP))
    home.debug("break", "loop.py:2", "--if", "missing > 3")
    stopped = home.debug("continue")
    assert stopped["stop"]["reason"] == "condition_error" and stopped["stop"]["exception"]["type"] == "NameError"
    assert "NameError" in home.run("debug", "status").stdout
    assert home.debug("continue")["state"] == "ended"


def test_stepping_goes_by_depth(home):
    home.start(home.write("loop.py", LOOP))
    home.debug("break", "loop.py:7")
    home.debug("continue")
    home.debug("clear")
    assert line(home.debug("next")) == 6 and line(home.debug("next")) == 7  # over the call
    stepped = home.debug("step")
    assert line(stepped) == 2 and stepped["stop"]["location"]["function"] == "work"
    returned = home.debug("finish")
    assert returned["stop"]["location"]["function"] == "<module>" and returned["stop"]["return_value"]["value"] == 10
    assert line(home.debug("next", "--count", "2")) == line(returned)  # once around the loop
    assert line(home.debug("until", "8")) == 8  # past the loop's end


def test_looking_at_any_frame_and_thread(home):
    source = "import threading\n\ndef inner(x):\n    y = x + 1\n    return y\n\ndef outer(name):\n    return inner(len(name))\n\nthread = threading.Thread(target=outer, args=('abc',), name='worker')\nthread.start()\nthread.join()\n"
    home.start(home.write("threads.py", source))
    home.debug("break", "threads.py:5")
    stopped = home.debug("continue")
    thread = stopped["stop"]["thread"]["id"]
    assert value(home, "y") == 4 and value(home, "name", "--frame", "1") == "abc"
    assert value(home, "name", "--frame", "1", "--thread", thread) == "abc"
    assert [one["location"]["function"] for one in home.debug("stack", "--thread", thread)["frames"]][:2] == [
        "inner",
        "outer",
    ]
    assert "worker" in {one["name"] for one in home.debug("threads")["threads"]}
    assert {one["name"] for one in home.debug("vars", "--frame", "1")["variables"]} == {"name"}
    place = home.debug("location")
    assert place["not_run_yet"] is True and "not run yet" in place["note"]
    assert home.debug("continue", "--thread", thread)["state"] == "ended"


def test_threads_stop_and_go_on_one_by_one(home):
    source = "import threading\n\ndef work(n):\n    here = n\n    return here\n\nthreads = [threading.Thread(target=work, args=(n,)) for n in range(2)]\n[t.start() for t in threads]\n[t.join() for t in threads]\n"
    home.start(home.write("pair.py", source))
    home.debug("break", "pair.py:4")
    home.debug("continue")
    wait_until(lambda: home.debug("status").get("stopped_threads") == 2)
    stopped = {one["id"]: one for one in home.debug("threads")["threads"] if one["state"] == "stopped"}
    assert sorted(value(home, "n", "--thread", id) for id in stopped) == [0, 1]
    first, second = stopped
    home.debug("continue", "--thread", first, "--max-wait", "0.2")
    status = home.debug("status")
    assert status["state"] == "stopped" and status["stop"]["thread"]["id"] == second  # the other one still stands
    assert home.debug("continue")["state"] == "ended"


def test_many_lines_are_evaluated_and_the_last_value_is_the_answer(home):
    home.start(home.write("loop.py", LOOP))
    home.debug("break", "loop.py:3")
    home.debug("continue")
    assert value(home, "import math\nmath.floor(math.pi)") == 3
    assert value(home, "text = 'import nothing from here'\nlen(text)") == 24
    home.debug("eval", "scale = 7\nextra = [scale] * 2")
    assert value(home, "scale + len(extra)") == 9
    assert home.debug("eval", "for k in range(3):\n    print('line', k)")["printed"] == "line 0\nline 1\nline 2\n"
    error = home.error("eval", "1 / 0")
    assert "ZeroDivisionError" in error["message"]
    assert "SyntaxError" in home.error("eval", "1 +")["message"] or "syntax" in home.error("eval", "1 +")["message"]
    assert (
        "timeout" in home.error("eval", "while True: pass", "--timeout", "0.3")["message"]
        or "interrupted" in home.error("eval", "while True: pass", "--timeout", "0.3")["message"]
    )
    assert value(home, "n") == 0  # it stands where it stood


def test_checkpoints_stop_by_name_and_context(home):
    pytest.importorskip("numpy")
    home.start(home.write("checks.py", CHECKPOINTS))
    home.debug("break", "--checkpoint", "block_*", "--context", "block=2")
    home.debug("break", "checks.py:7", "--if", "i == 2")
    stopped = home.debug("continue")
    assert stopped["stop"]["reason"] == "checkpoint" and "block_out" in json.dumps(stopped["stop"]["checkpoint"])
    assert value(home, "i") == 2  # not at block 0
    assert [frame["location"]["function"] for frame in home.debug("stack")["frames"]][:2] == ["block", "<module>"]
    after = home.debug("continue")
    assert after["stop"]["reason"] == "breakpoint" and line(after) == 7  # the line right after it holds
    running = home.debug("continue", "--max-wait", "20")
    assert running["state"] == "ended"  # and no stale "paused"
    names = {one["name"]: one["hits"] for one in home.debug("checkpoints")["checkpoints"]}
    assert names["block_out"] == 6


def test_a_skipped_checkpoint_only_records(home):
    pytest.importorskip("numpy")
    home.start(home.write("checks.py", CHECKPOINTS))
    home.debug("break", "--checkpoint", "block_out")
    seen = []
    while True:
        stopped = home.debug("continue")
        if stopped["state"] != "stopped":
            break
        seen.append(value(home, "i"))
    assert seen == [0, 1, 2, 3, 5]


def test_what_the_program_prints_is_in_the_log_at_once(home):
    home.start(home.write("prints.py", "print('out')\nimport sys\nsys.stderr.write('err\\n')\nlast = 1\n"))
    home.debug("break", "prints.py:4")
    home.debug("continue")
    wait_until(lambda: home.debug("log")["lines"] == ["out", "err"])
    assert home.run("debug", "log").stdout == "out\nerr\n"


def test_starting_reads_no_library_and_waits_for_nothing(home):
    cache = home.write("__pycache__/kept.txt", "kept")
    began = home.start(home.write("tiny.py", "x = 1\n"))
    assert began["state"] == "stopped" and began["secs"] < 20 and cache.exists()


def test_exit_leaves_no_session_behind(home):
    home.start(
        home.write(
            "leaves.py",
            "import sys\nfrom lockstep import debug_checkpoint\ndebug_checkpoint('a', skip=True)\nsys.exit(5)\n",
        )
    )
    assert home.debug("continue")["end"]["how"] == "sys_exit"
    assert home.debug("sessions")["live"] == 0


def test_start_waits_for_a_running_program_as_long_as_it_is_told(home):
    script = home.write("naps.py", "import time\ntime.sleep(1.5)\nprint('awake')\n")
    began = home.start(script, options=["--run"])
    assert began["state"] == "running" and "debug wait" in began["hint"]
    began = home.start(script, options=["--run", "--max-wait", "60"])
    assert began["state"] == "ended" and began["end"]["how"] == "finished" and began["program"] == str(script), began
    began = home.start(script, options=["--run", "--max-wait", "60", "--break", f"{script}:3"])
    assert began["state"] == "stopped" and line(began) == 3


def test_clear_and_files_answer_after_the_end(home):
    home.start(home.write("loop.py", LOOP))
    home.debug("break", "loop.py:7", "--if", "i == 100")
    assert home.debug("continue")["state"] == "ended"
    assert home.debug("clear")["removed"] == [1]
    assert home.debug("restart")["breakpoints"] == 0
    home.debug("continue")
    home.run("serve", "--stop")
    assert [pathlib.Path(one["file"]).name for one in home.debug("files")["files"] if not one["library"]] == ["loop.py"]
    assert home.debug("clear")["removed"] == []
    assert home.debug("checkpoints")["checkpoints"] == []


def test_tensors_in_tuples_show_their_values(home):
    home.start(
        home.write(
            "pair.py", "import numpy\npair = numpy.arange(4.0), {'inside': numpy.full((2, 3), 7.0)}\nprint('end')\n"
        )
    )
    home.debug("break", "pair.py:3")
    home.debug("continue")
    shown = home.run("debug", "eval", "pair").stdout
    assert "0: numpy [4] float64 on cpu" in shown and "values 0 1 2 3" in shown, shown
    assert "inside: numpy [2,3] float64 on cpu" in shown and "max 7" in shown, shown


def test_the_help_of_a_switch_says_what_switching_off_does(home):
    assert "--no-library" in home.run("debug", "step", "--help").stdout
    assert "skip library code" in home.run("debug", "step", "--help").stdout


def test_serve_beside_a_running_service_tells_its_address(home):
    running = home.ensure()
    address = f"http://127.0.0.1:{running['port']}/v1"
    done = home.run("serve")
    assert address in done.stderr and str(home.home / "service" / "token") in done.stderr
    assert json.loads(home.run("--json", "serve").stdout)["port"] == running["port"]
    refused = home.run("serve", "--port", "1", check=False)
    assert refused.returncode != 0 and address in refused.stderr and "serve --stop" in refused.stderr
    assert home.service()["pid"] == running["pid"]
