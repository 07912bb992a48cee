"""The Debug Adapter Protocol through a client: what an editor does, on real programs."""

import base64
import io
import pathlib
import signal

import pytest
from dap_client import LOOP, Refused, finish, launched
from debug_service import PROGRAM, alive, wait_until

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def line_of(source, text):
    return 1 + source[: source.index(text)].count("\n")


def test_a_program_is_stopped_looked_into_and_changed(home):
    client, script, set_ = launched(home, LOOP, breakpoints=[{"line": 5, "condition": "step == 3"}])
    assert [one["verified"] for one in set_[script]] == [True] and set_[script][0]["line"] == 5
    stop = client.stopped()
    assert stop["reason"] == "breakpoint" and stop["hitBreakpointIds"] == [set_[script][0]["id"]]
    assert client.request("threads")["threads"] == [{"id": stop["threadId"], "name": "MainThread"}]
    assert client.event("thread")["reason"] == "started"
    trace = client.request("stackTrace", threadId=stop["threadId"], startFrame=0, levels=1)
    assert trace["totalFrames"] == 2 and len(trace["stackFrames"]) == 1
    frame = trace["stackFrames"][0]
    assert (frame["name"], frame["line"], frame["source"]["path"]) == ("scale", 5, str(script))
    caller = client.request("stackTrace", threadId=stop["threadId"], startFrame=1, levels=5)["stackFrames"]
    assert [one["line"] for one in caller] == [10]
    found = client.locals(frame)
    assert found["step"]["value"] == "3" and found["step"]["type"] == "int"

    for context in ("hover", "watch", "repl"):
        assert client.request("evaluate", expression="step * 2", frameId=frame["id"], context=context)["result"] == "6"
    assert (
        client.request("evaluate", expression="len(values)", frameId=caller[0]["id"], context="watch")["result"] == "3"
    )
    made = client.request("evaluate", expression="[step, {'a': [7]}]", frameId=frame["id"], context="repl")
    inside = client.variables(made["variablesReference"])
    assert inside["[0]"]["value"] == "3"
    deeper = client.variables(inside["[1]"]["variablesReference"])["['a']"]
    assert client.variables(deeper["variablesReference"])["[0]"]["value"] == "7"
    with pytest.raises(Refused, match="ZeroDivisionError"):
        client.request("evaluate", expression="1 / 0", frameId=frame["id"], context="watch")
    printed = client.request(
        "evaluate", expression="for i in range(2):\n    print('turn', i)", frameId=frame["id"], context="repl"
    )
    assert printed["result"] == "turn 0\nturn 1\n"

    scope = client.request("scopes", frameId=frame["id"])["scopes"][0]["variablesReference"]
    client.variables(scope)
    assert client.request("setVariable", variablesReference=scope, name="sigma", value="0.5 + 0.25")["value"] == "0.75"
    assert client.request("setExpression", expression="values[0]", value="-1", frameId=frame["id"])["value"] == "-1"
    labels = [
        one["label"]
        for one in client.request("completions", text="values.app", column=11, frameId=frame["id"])["targets"]
    ]
    assert labels == ["append"]
    labels = [
        one["label"] for one in client.request("completions", text="si", column=3, frameId=frame["id"])["targets"]
    ]
    assert labels[0] == "sigma"

    client.request("next", threadId=stop["threadId"])
    stop = client.stopped()
    assert stop["reason"] == "step"
    with pytest.raises(Refused, match="gone"):
        client.request("scopes", frameId=frame["id"])
    frame = client.top(stop)
    assert frame["line"] == 6
    held = client.locals(frame)
    pair = client.variables(held["kept"]["variablesReference"])["['pair']"]
    assert client.variables(pair["variablesReference"])["[1]"]["value"] == "0.75"
    client.request("stepOut", threadId=stop["threadId"])
    stop = client.stopped()
    assert client.top(stop)["name"] == "<module>"
    client.request("setBreakpoints", source={"path": str(script)}, breakpoints=[])
    client.request("continue", threadId=stop["threadId"])
    assert finish(client) == 0
    assert client.output() == "6 steps\n"


def test_hits_logs_and_functions(home):
    client, script, set_ = launched(
        home,
        LOOP,
        functions=[{"name": "scale", "condition": "step >= 2", "hitCondition": "% 2"}],
        breakpoints=[{"line": 10, "logMessage": "step {step} of {len(values)}, 100 %"}],
    )
    assert client.capabilities["supportsHitConditionalBreakpoints"] and client.capabilities["supportsLogPoints"]
    seen = []
    for _ in range(2):
        stop = client.stopped()
        seen.append(
            client.request("evaluate", expression="step", frameId=client.top(stop)["id"], context="hover")["result"]
        )
        client.request("continue", threadId=stop["threadId"])
    assert seen == ["3", "5"]  # of 2, 3, 4, 5 every second
    assert finish(client) == 0
    logged = [body["output"] for body in client.seen("output") if body["category"] == "console"]
    assert logged == [f"step {n} of {n}, 100 %\n" for n in range(6)]


@pytest.mark.parametrize(
    "condition, stops", [("3", ["2"]), ("== 3", ["2"]), (">= 5", ["4", "5"]), ("< 2", ["0"]), ("% 4", ["3"])]
)
def test_hit_conditions(home, condition, stops):
    client, script, _ = launched(home, LOOP, breakpoints=[{"line": 5, "hitCondition": condition}])
    for expected in stops:
        stop = client.stopped()
        assert client.request("evaluate", expression="step", frameId=client.top(stop)["id"])["result"] == expected
        client.request("continue", threadId=stop["threadId"])
    assert finish(client) == 0


def test_what_cannot_be_set_says_why(home):
    source = "x = 1\n# a comment\ny = 2\n"
    client, script, set_ = launched(
        home,
        source,
        stopOnEntry=True,
        breakpoints=[{"line": 2}, {"line": 99}, {"line": 1, "condition": "x =="}, {"line": 1, "hitCondition": "often"}],
    )
    moved, past, syntax, often = set_[script]
    assert moved["line"] == 3 and "moved" in moved["message"]
    assert not past["verified"] and "no code" in past["message"]
    assert not syntax["verified"] and "x ==" in syntax["message"]
    assert not often["verified"] and "often" in often["message"]
    assert client.stopped()["reason"] == "entry"
    assert client.request("breakpointLocations", source={"path": str(script)}, line=1, endLine=3)["breakpoints"] == [
        {"line": 1},
        {"line": 3},
    ]


def test_steps_into_the_programs_own_code(home):
    home.write("own.py", "def inner(x):\n    return x + 1\n\n\ndef key(x):\n    return inner(x)\n")
    source = "import json\nfrom own import key\nprint(json.dumps({}), sorted([2, 1], key=key))\n"
    client, script, _ = launched(home, source, breakpoints=[3])
    stop = client.stopped()
    client.request("stepIn", threadId=stop["threadId"])
    stop = client.stopped()
    assert client.top(stop)["name"] == "key", "through json, which is not the program's own"
    client.request("stepIn", threadId=stop["threadId"])
    stop = client.stopped()
    assert client.top(stop)["name"] == "inner"
    client.request("disconnect")
    client, script, _ = launched(home, source, breakpoints=[3], justMyCode=False)
    stop = client.stopped()
    client.request("stepIn", threadId=stop["threadId"])
    frame = client.top(client.stopped())
    assert frame["name"] == "dumps" and frame["presentationHint"] == "subtle"


def test_an_uncaught_exception_stops_where_it_was_raised(home):
    source = "def deep(n):\n    secret = n\n    raise KeyError('no %d' % n)\n\ntry:\n    deep(1)\nexcept KeyError as error:\n    raise ValueError('outer') from error\n"
    client, script, _ = launched(home, source)
    stop = client.stopped()
    assert stop["reason"] == "exception"
    about = client.request("exceptionInfo", threadId=stop["threadId"])
    assert (
        about["exceptionId"] == "builtins.ValueError"
        and about["breakMode"] == "unhandled"
        and about["description"] == "outer"
    )
    assert about["details"]["innerException"][0]["typeName"] == "KeyError"
    assert client.top(stop)["line"] == 8
    client.request("continue", threadId=stop["threadId"])
    assert finish(client) == 1
    client, script, _ = launched(home, source, exceptions=())
    assert finish(client) == 1
    assert not client.seen("stopped")


def test_deep_stacks_and_many_variables_come_in_pages(home):
    many = "\n".join(f"    v{n} = {n}" for n in range(10_000))
    source = f"import sys\nsys.setrecursionlimit(5000)\ndef down(n):\n    if n == 0:\n        return wide()\n    return down(n - 1)\n\ndef wide():\n{many}\n    return 0\n\ndown(1000)\n"
    client, script, _ = launched(home, source, breakpoints=[line_of(source, "    return 0")])
    stop = client.stopped()
    trace = client.request("stackTrace", threadId=stop["threadId"], startFrame=0, levels=20)
    assert len(trace["stackFrames"]) == 20 and trace["totalFrames"] == 1003
    whole = client.request("stackTrace", threadId=stop["threadId"])
    assert len(whole["stackFrames"]) == 1003 and len({frame["id"] for frame in whole["stackFrames"]}) == 1003
    part = client.request("stackTrace", threadId=stop["threadId"], startFrame=1000, levels=100)["stackFrames"]
    assert [frame["name"] for frame in part] == ["down", "down", "<module>"]
    scope = client.request("scopes", frameId=whole["stackFrames"][0]["id"])["scopes"][0]["variablesReference"]
    seen = []
    for start in range(0, 10_000, 2500):
        seen += [
            one["value"]
            for one in client.request("variables", variablesReference=scope, start=start, count=2500)["variables"]
        ]
    assert seen == [str(n) for n in range(10_000)]


@pytest.mark.parametrize("framework", ["numpy", "torch", "mlx"])
def test_tensors_are_summarised_and_opened_by_slices(home, framework):
    module = pytest.importorskip({"mlx": "mlx.core"}.get(framework, framework))
    picture = pytest.importorskip("PIL.Image")
    make = {
        "numpy": "import numpy as np\nx = np.arange(2 * 3 * 40, dtype='float32').reshape(2, 3, 40)",
        "torch": "import torch\nx = torch.arange(2 * 3 * 40, dtype=torch.float32).reshape(2, 3, 40)",
        "mlx": "import mlx.core as mx\nx = mx.arange(2 * 3 * 40, dtype=mx.float32).reshape(2, 3, 40)",
    }[framework]
    source = make + "\nx[1, 2, 3] = float('nan')\ny = {'scores': x}\nprint('ready')\n"
    client, script, _ = launched(home, source, breakpoints=[line_of(source, "print")])
    frame = client.top(client.stopped())
    x = client.locals(frame)["x"]
    assert x["value"].startswith(f"{framework} float32[2, 3, 40]") and x["indexedVariables"] == 2
    assert "min" not in x["value"], "nothing is computed for a list of variables"
    hover = client.request("evaluate", expression="x", frameId=frame["id"], context="hover")["result"]
    assert "min 0 " in hover and "max 239" in hover and "nan 1" in hover
    named = client.variables(x["variablesReference"], filter="named")
    assert list(named)[0] == "statistics" and len(named) == x["namedVariables"]
    stats = client.variables(named["statistics"]["variablesReference"])
    assert stats["max"]["value"] == "239" and stats["nan"]["value"] == "1"
    rows = client.variables(x["variablesReference"], filter="indexed", start=1, count=1)
    assert list(rows) == ["[1]"] and "[3, 40]" in rows["[1]"]["value"]
    row = client.variables(rows["[1]"]["variablesReference"], filter="indexed")
    numbers = client.variables(row["[2]"]["variablesReference"], filter="indexed", start=2, count=3)
    assert "202.0" in numbers["[2]"]["value"] and "nan" in numbers["[3]"]["value"]
    slice_ = client.request("evaluate", expression="x[0, :, ::20]", frameId=frame["id"], context="repl")
    assert "[3, 2]" in slice_["result"] and slice_["indexedVariables"] == 3
    shown = client.request("lockstep/tensorPicture", expression="y['scores']", frameId=frame["id"])
    image = picture.open(io.BytesIO(base64.b64decode(shown["png"])))
    assert (
        image.format == "PNG" and image.size == (shown["width"], shown["height"]) and shown["mimeType"] == "image/png"
    )
    assert (shown["tiles"], shown["min"], shown["max"], shown["not_finite"]) == (2, 0, 239, 1)
    assert (255, 0, 255) in [colour for _, colour in image.convert("RGB").getcolors(1 << 24)], (
        "what is not finite is seen"
    )
    one = client.request("lockstep/tensorPicture", variablesReference=x["variablesReference"], slice="0")
    assert one["shape"] == [3, 40] and one["not_finite"] == 0
    with pytest.raises(Refused, match="no tensor"):
        client.request("lockstep/tensorPicture", expression="y", frameId=frame["id"])
    if framework == "numpy":
        client.request("setVariable", variablesReference=row["[2]"]["variablesReference"], name="[3]", value="5")
        assert client.request("evaluate", expression="float(x[1, 2, 3])", frameId=frame["id"])["result"] == "5.0"
    assert module is not None


def test_modules_and_sources_are_told_as_they_come(home):
    home.write("late.py", "def answer():\n    return 42\n")
    source = "def load():\n    import late\n    return late.answer()\n\nprint('one')\nload()\nprint('two')\n"
    client, script, _ = launched(home, source, breakpoints=[5, 7])
    stop = client.stopped()
    client.event("module", lambda body: body["module"]["path"] == str(script))
    assert not any(body["module"]["name"] == "late" for body in client.seen("module"))
    client.request("continue", threadId=stop["threadId"])
    stop = client.stopped()
    body = client.event("module", lambda body: body["module"]["name"] == "late")
    assert body["reason"] == "new" and body["module"]["isUserCode"]
    client.event("loadedSource", lambda body: body["source"].get("path") == str(home.folder / "late.py"))
    everything = client.request("modules")
    assert everything["totalModules"] == len(everything["modules"]) and "late" in [
        one["name"] for one in everything["modules"]
    ]
    part = client.request("modules", startModule=1, moduleCount=2)
    assert [one["name"] for one in part["modules"]] == [one["name"] for one in everything["modules"][1:3]]
    assert str(home.folder / "late.py") in [one.get("path") for one in client.request("loadedSources")["sources"]]
    assert client.request("source", source={"path": str(script)}, sourceReference=0)["content"] == source


def test_a_running_program_is_paused_and_other_threads_go_on(home):
    source = """import threading, time
ticks = []
def work():
    while len(ticks) < 100000:
        ticks.append(1)
        time.sleep(0.001)
helper = threading.Thread(target=work, name="helper", daemon=True)
helper.start()
while True:
    time.sleep(0.001)
"""
    client, script, _ = launched(home, source)
    client.event("process")
    wait_until(lambda: "helper" in [one["name"] for one in client.request("threads")["threads"]])
    threads = {one["name"]: one["id"] for one in client.request("threads")["threads"]}
    client.request("pause", threadId=threads["MainThread"])
    stop = client.stopped()
    assert stop["reason"] == "pause" and stop["threadId"] == threads["MainThread"] and not stop["allThreadsStopped"]
    frame = client.top(stop)

    def count():
        return int(client.request("evaluate", expression="len(ticks)", frameId=frame["id"])["result"])

    before = count()
    wait_until(lambda: count() > before)
    with pytest.raises(Refused, match="not stopped"):
        client.request("stackTrace", threadId=threads["helper"])
    client.request("pause", threadId=threads["helper"])
    assert client.stopped()["threadId"] == threads["helper"]
    client.request("continue", threadId=threads["helper"], singleThread=True)
    assert client.request("evaluate", expression="1", frameId=frame["id"])["result"] == "1", (
        "the other one still stands"
    )
    assert client.request("continue", threadId=threads["MainThread"])["allThreadsContinued"]
    pid = client.seen("process")[0]["systemProcessId"]
    client.process.send_signal(signal.SIGKILL)  # the editor's adapter dies: the session lives, and can be taken over
    client.process.wait()
    other = home.editor()
    other.begin("attach", processId=pid)
    other.request("disconnect", terminateDebuggee=True)
    wait_until(lambda: not alive(pid))


def test_a_long_evaluation_is_cancelled(home):
    client, script, _ = launched(home, LOOP, breakpoints=[5])
    frame = client.top(client.stopped())
    evaluation = client.send("evaluate", expression="__import__('time').sleep(8)", frameId=frame["id"])
    answer = client.answer(client.send("cancel", requestId=evaluation))
    assert answer["success"]
    answer = client.answer(evaluation)
    assert not answer["success"] and answer["message"] == "cancelled"


def test_capabilities_tell_the_truth(home):
    client, script, _ = launched(home, LOOP, breakpoints=[5])
    stop = client.stopped()
    asks = {
        "supportsConfigurationDoneRequest": "configurationDone",
        "supportsFunctionBreakpoints": "setFunctionBreakpoints",
        "supportsSetVariable": "setVariable",
        "supportsSetExpression": "setExpression",
        "supportsCompletionsRequest": "completions",
        "supportsModulesRequest": "modules",
        "supportsLoadedSourcesRequest": "loadedSources",
        "supportsRestartRequest": "restart",
        "supportsTerminateRequest": "terminate",
        "supportsExceptionInfoRequest": "exceptionInfo",
        "supportsCancelRequest": "cancel",
        "supportsBreakpointLocationsRequest": "breakpointLocations",
        "supportsStepBack": "stepBack",
        "supportsGotoTargetsRequest": "gotoTargets",
        "supportsStepInTargetsRequest": "stepInTargets",
        "supportsDataBreakpoints": "setDataBreakpoints",
        "supportsReadMemoryRequest": "readMemory",
        "supportsWriteMemoryRequest": "writeMemory",
        "supportsDisassembleRequest": "disassemble",
        "supportsTerminateThreadsRequest": "terminateThreads",
        "supportsRestartFrame": "restartFrame",
        "supportsInstructionBreakpoints": "setInstructionBreakpoints",
    }
    for capability, command in asks.items():
        try:
            client.request(command) if command not in ("restart", "terminate", "configurationDone") else None
            known = True
        except Refused as error:
            known = "there is no request" not in str(error)
        assert known == bool(client.capabilities.get(capability)), capability
    assert [one["filter"] for one in client.capabilities["exceptionBreakpointFilters"]] == ["uncaught"]
    assert client.request("lockstep/operation", operation="debug breaks")["breakpoints"][0]["hit_count"] == 1
    assert stop["reason"] == "breakpoint"
