"""MCP with the official client: over stdio and over streamable HTTP."""

import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import time
import warnings

import pytest
from debug_service import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
mcp = pytest.importorskip("mcp")

COUNT = "def double(n):\n    result = n * 2\n    return result\n\nfor i in range(3):\n    value = double(i)\nprint('done', value)\n"


def connect(home, transport, mode="auto"):
    """mode: "auto" takes the newest revision that both speak, "legacy" the newest with a handshake."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    if transport == "stdio":
        return Client(
            StdioServerParameters(command=PROGRAM, args=["mcp"], env=dict(home.environment), cwd=home.folder), mode=mode
        )
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    where = home.ensure()
    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {home.token()}"}, timeout=60)
    return Client(streamable_http_client(f"http://127.0.0.1:{where['port']}/mcp", http_client=client), mode=mode)


both = pytest.mark.parametrize("transport", ["stdio", "http"])
each = pytest.mark.parametrize("mode", ["auto", "legacy"])


@both
@each
def test_the_newest_revision_is_spoken(home, transport, mode):
    from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_PROTOCOL_VERSION

    async def talk():
        async with connect(home, transport, mode) as client:
            assert client.protocol_version == (LATEST_PROTOCOL_VERSION if mode == "auto" else LATEST_HANDSHAKE_VERSION)
            assert client.server_info.name == "lockstep"

    asyncio.run(asyncio.wait_for(talk(), 60))


@both
@each
def test_every_tool_is_listed_and_called(home, transport, mode):
    np = pytest.importorskip("numpy")
    np.save(home.folder / "a.npy", np.arange(6, dtype=np.float32))
    script = str(home.write("count.py", COUNT))

    async def talk():
        called = set()
        async with connect(home, transport, mode) as client:
            assert "debug_start" in client.instructions
            if mode == "legacy":  # the newest revision has no ping
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    await client.send_ping()
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert all(
                tool.description and tool.input_schema["type"] == "object" and tool.output_schema
                for tool in tools.values()
            )

            async def call(tool, fails=False, **arguments):
                called.add(tool)
                result = await client.call_tool(
                    tool, arguments
                )  # the client checks the answer against the tool's schema
                assert bool(result.is_error) == fails, result.content[0].text
                return result.content[0].text if fails else result.structured_content

            began = await call("debug_start", script=script, python=sys.executable, cwd=str(home.folder))
            assert began["stop"]["reason"] == "entry"
            made = await call("debug_break", where="count.py:2", **{"if": "n == 1"})
            stopped = await call("debug_continue")
            assert stopped["stop"]["location"]["line"] == 2
            assert (await call("debug_eval", expression="n + 41"))["value"]["value"] == 42
            await call("debug_set", name="n", value="7")
            assert (await call("debug_complete", text="resu"))["total"] == 0
            assert (await call("debug_exceptions", stop="uncaught"))["stop"] == "uncaught"
            assert "no tensor" in await call("debug_picture", fails=True, expression="n")
            for name in (
                "vars",
                "stack",
                "location",
                "source",
                "threads",
                "count",
                "files",
                "checkpoints",
                "loaded",
                "breaks",
                "status",
                "sessions",
                "log",
                "wait",
                "pause",
            ):
                await call(f"debug_{name}")
            await call("debug_why", which=str(made["breakpoint"]["id"]))
            assert (await call("debug_next"))["stop"]["location"]["line"] == 3
            assert (await call("debug_finish"))["stop"]["location"]["function"] == "<module>"
            await call("debug_step")
            await call("debug_remove", which=str(made["breakpoint"]["id"]))
            await call("debug_clear")
            await call("debug_until", line=7)
            await call("debug_trace_show")
            await call("debug_trace_export", to=str(home.folder / "out.json"))
            assert "do not diverge" in await call(
                "debug_zoom", fails=True, reference=str(home.folder / "a.npy"), candidate=str(home.folder / "a.npy")
            )
            await call("debug_restart")
            assert (await call("debug_terminate"))["state"] == "ended"
            assert "try restart" in await call("debug_eval", fails=True, expression="1")
            twin = await call(
                "debug_twin_start", reference=script, candidate=script, python=sys.executable, cwd=str(home.folder)
            )
            assert twin["stopped"]
            for name in ("next", "vars", "status", "wait"):
                await call(f"debug_twin_{name}")
            assert (await call("debug_twin_eval", expression="1 + 1"))["candidate"]["value"]["value"] == 2
            await call("debug_twin_substitute", run=False)
            assert (await call("debug_twin_continue", until_divergence=True))["candidate"]["state"] == "ended"
            await call("debug_twin_terminate")
            recorded = await call("record", program=[sys.executable, "-c", "pass"], name="empty")
            await call("runs_list")
            await call("runs_show", run=recorded["run"])
            for name in ("list", "info", "show"):
                await call(f"tensors_{name}", path=str(home.folder / "a.npy"))
            await call("tensors_diff", reference=str(home.folder / "a.npy"), candidate=str(home.folder / "a.npy"))
            await call("compare", reference=str(home.folder / "a.npy"), candidate=str(home.folder / "a.npy"))
            pair = {"reference": str(home.folder / "a.npy"), "candidate": str(home.folder / "a.npy")}
            assert (await call("compare_rows", **pair))["total"] == 1
            assert (await call("compare_tree", **pair))["verdict"] == "match"
            assert (await call("compare_heat", row=0, **pair))["shape"] == [6]
            assert "no such" in await call("compare_source", fails=True, row=7, **pair)
            assert "picture" in await call("compare_picture", fails=True, **pair)
            await call("compare_ledger", substituted=pair["reference"], **pair)
            assert (await call("runs_tensors", run=pair["reference"]))["total"] == 1
            for name in ("slice", "heat", "histogram", "channels"):
                assert (await call(f"tensors_{name}", path=pair["reference"]))["shape"] == [6]
            assert (await call("maps_save", name="port", map='{"rules": []}'))["rules"] == 0
            assert len((await call("maps_list"))["maps"]) == 1
            await call("maps_show", name="port")
            assert (await call("doctor"))["version"]
            assert (await call("models_list"))["data"]
            await call("models_show", id="tiny")
            drawn = await call("jobs_create", prompt="a red circle", size="64x64", steps=2)
            await call("jobs_list")
            await call("jobs_show", id=drawn["id"])
            await call("jobs_cancel", id=drawn["id"])
            assert "do not diverge" in await call(
                "zoom", fails=True, reference=str(home.folder / "a.npy"), candidate=str(home.folder / "a.npy")
            )
            assert (await call("coverage", program=[sys.executable, "-c", "pass"]))["exit_code"] == 0
            profiled = await call("profile", program=[sys.executable, "-c", "pass"])
            assert profiled["exit_code"] == 0 and profiled["calls"] == 0
            assert (await call("profile_compare", reference=profiled["run"], candidate=profiled["run"]))["stages"] == []
            assert "--packages" in await call("prune", fails=True, program=[sys.executable, "-c", "pass"], dry_run=True)
            assert "no records" in await call("runs_health", fails=True, run=recorded["run"])
            assert (await call("runs_limits"))["warn_bytes"] == 1000**3
            assert (await call("clean", keep_last=1000))["removed"] is False
            assert (await call("kill-all"))["done"] is False
            assert "try lockstep tensors list" in await call(
                "tensors_info", fails=True, path=str(home.folder / "a.npy"), name="zzzzzzzzzz"
            )
            assert called == set(tools)

    asyncio.run(asyncio.wait_for(talk(), 120))


async def until(condition, secs=20):
    for _ in range(secs * 20):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


@both
@each
def test_progress_and_cancel(home, transport, mode):
    script = str(home.write("sleeps.py", "import time\nwhile True:\n    time.sleep(0.05)\n"))

    async def talk():
        async with connect(home, transport, mode) as client:
            began = await client.call_tool(
                "debug_start", {"script": script, "python": sys.executable, "run": True, "cwd": str(home.folder)}
            )
            assert not began.is_error
            seen = []

            async def progress(done, total, message):
                seen.append((done, message))

            result = await client.call_tool("debug_wait", {"max_wait": 3}, progress_callback=progress)
            assert result.structured_content["state"] == "running"
            assert seen and seen == sorted(seen) and "running" in seen[0][1]
            for wants_progress in (False, True):
                waiting = asyncio.create_task(
                    client.call_tool(
                        "debug_wait", {"max_wait": 40}, progress_callback=progress if wants_progress else None
                    )
                )
                await until(lambda: home.get("health")["long_calls"] >= 1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await until(lambda: home.get("health")["long_calls"] == 0)  # the service has stopped waiting too
            status = await client.call_tool("debug_status", {})  # the connection lives, the program too
            assert status.structured_content["state"] == "running"
            await client.call_tool("debug_terminate", {"force": True})

    asyncio.run(asyncio.wait_for(talk(), 120))


def test_answers_are_bounded(home):
    script = str(home.write("prints.py", "for i in range(20000):\n    print('line', i, 'x' * 50)\n"))

    async def talk():
        async with connect(home, "stdio") as client:
            await client.call_tool("debug_start", {"script": script, "python": sys.executable, "run": True})
            await client.call_tool("debug_wait", {})
            result = await client.call_tool("debug_log", {"lines": 10000})
            assert len(result.content[0].text) < 30000
            assert "from" in result.structured_content["left_out"]["hint"]
            more = await client.call_tool("debug_log", {"from": 100, "lines": 5})
            assert more.structured_content["lines"][0].startswith("line 99 ")

    asyncio.run(asyncio.wait_for(talk(), 120))


def test_odd_messages_are_answered(home):
    odd = [
        "{",
        "[]",
        '{"jsonrpc": "2.0"}',
        '{"jsonrpc": "2.0", "id": 1, "method": "nothing"}',
        '{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "debug_statsu"}}',
        '{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "debug_break", "arguments": {"where": 5}}}',
        '{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "debug_stack", "arguments": {"sessoin": "x"}}}',
        '{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": 7}',
        '{"jsonrpc": "2.0", "method": "notifications/cancelled"}',
        "",
        '{"jsonrpc": "2.0", "id": "x", "method": "ping"}',
    ]
    done = subprocess.run(
        [PROGRAM, "mcp"],
        input="\n".join(odd) + "\n",
        env=home.environment,
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    by_id = {str(reply.get("id")): reply for reply in replies}
    assert done.returncode == 0
    assert by_id["1"]["error"]["code"] == -32601
    assert "debug status" in by_id["2"]["error"]["message"]
    assert by_id["3"]["result"]["isError"] and "expected a text" in by_id["3"]["result"]["content"][0]["text"]
    assert "expected session, thread, from, limit" in by_id["5"]["result"]["content"][0]["text"], by_id["5"]
    assert by_id["4"]["error"]["code"] == -32602
    assert by_id["x"]["result"] == {}


def call(number, tool, **arguments):
    return (
        json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        )
        + "\n"
    )


def running_program(home):
    (home.folder / "wait.py").write_text("import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n")
    home.run("debug", "start", "--run", "wait.py")


def test_the_end_of_the_requests_loses_no_answer(home):
    running_program(home)
    asked = call(1, "debug_wait", max_wait=1) + call(2, "debug_status")
    done = subprocess.run(
        [PROGRAM, "mcp"], input=asked, env=home.environment, cwd=home.folder, capture_output=True, text=True, timeout=60
    )
    replies = {reply["id"]: reply["result"] for reply in map(json.loads, done.stdout.splitlines())}
    assert (
        done.returncode == 0
        and replies[1]["structuredContent"]["state"] == replies[2]["structuredContent"]["state"] == "running"
    )


def test_a_client_that_is_gone_keeps_no_call_waiting(home):
    running_program(home)
    server = subprocess.Popen(
        [PROGRAM, "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=home.environment,
        cwd=home.folder,
        text=True,
    )
    server.stdin.write(call(1, "debug_wait", max_wait=50))
    server.stdin.close()
    server.stdout.close()
    began = time.monotonic()
    server.wait(60)
    assert time.monotonic() - began < 40


def envelope(**extra):
    return {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
        **extra,
    }


def posted(home, message, **headers):
    named = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": message.get("method", ""),
    }
    if message.get("method") == "tools/call":
        named["Mcp-Name"] = message["params"].get("name", "")
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    status, _, answer = home.http("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, **message}, headers=named)
    return status, answer


def test_the_stateless_revision_checks_what_it_is_told(home):
    home.ensure()
    discover = {"method": "server/discover", "params": envelope()}
    status, answer = posted(home, discover)
    assert (
        status == 200
        and answer["result"]["supportedVersions"][0] == "2026-07-28"
        and answer["result"]["resultType"] == "complete"
    )
    assert posted(home, discover, Mcp_Method="tools/list")[1]["error"]["code"] == -32020
    assert posted(home, discover, Mcp_Protocol_Version="2025-11-25")[1]["error"]["code"] == -32020
    call = {"method": "tools/call", "params": envelope(name="debug_sessions", arguments={})}
    assert posted(home, call)[1]["result"]["isError"] is False
    assert posted(home, call, Mcp_Name="debug_status") == (
        400,
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "Mcp-Name differs from the name in the body"}},
    )
    status, answer = posted(home, {"method": "initialize", "params": envelope()})
    assert status == 404 and answer["error"]["code"] == -32601
    newer = envelope()
    newer["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2031-01-01"
    status, answer = posted(home, {"method": "tools/list", "params": newer}, Mcp_Protocol_Version="2031-01-01")
    assert status == 400 and answer["error"]["code"] == -32022 and "2026-07-28" in answer["error"]["data"]["supported"]
    bare = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    assert posted(home, {"method": "tools/list", "params": bare})[1]["error"]["code"] == -32602
    assert posted(home, {"method": "tools/list", "params": {}})[1]["error"]["code"] == -32602


def test_waiting_agents_do_not_lock_the_others_out(home):
    script = str(home.write("sleeps.py", "import time\ntime.sleep(600)\n"))
    home.ensure()
    session = home.call("debug/start", script=script, python=sys.executable, cwd=str(home.folder), run=True)["id"]
    wait = {
        "method": "tools/call",
        "params": envelope(name="debug_wait", arguments={"session": session, "max_wait": 30}),
    }
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(posted(home, wait)[0])) for _ in range(60)]
    for thread in threads:
        thread.start()
    assert home.http("GET", "/v1/health", timeout=20)[0] == 200
    home.call("debug/terminate", session=session, force=True)
    for thread in threads:
        thread.join(60)
    assert len(statuses) == 60 and set(statuses) <= {200, 503} and 200 in statuses
