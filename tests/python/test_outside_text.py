"""Names and texts of others never steer a terminal, hide text or pass for a line of ours, wherever they are shown."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from debug_service import Home
from program import PROGRAM, run
from report_file import report_rows

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")

# ESC, BEL, a C1 control sequence, a bidirectional override and isolate, a line of its own, a hidden tag.
EVIL = "a\x1b[31m\x07b\x9b31mc\u202ed\u2066e\nlockstep: MATCH\u2028f\U000e0041"
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def recorded(folder, value, name=EVIL, **fields):
    """A run by hand, with text from outside in every field that is shown."""
    (folder / "tensors").mkdir(parents=True)
    array = np.full((2, 3), value, np.float32)
    np.save(folder / "tensors" / "t.npy", array)
    manifest = {
        "format": "lockstep-run",
        "version": 1,
        "id": folder.name,
        "name": EVIL,
        "created": EVIL,
        "finished": EVIL,
        "status": EVIL,
    }
    manifest.update(
        {
            "program": {"argv": [EVIL], "cwd": EVIL},
            "producer": {"name": EVIL},
            "model": EVIL,
            "settings": {EVIL: EVIL},
            "versions": {EVIL: EVIL},
        }
    )
    (folder / "run.json").write_text(json.dumps(manifest))
    record = {
        "seq": 0,
        "name": name,
        "step": None,
        "hit": 0,
        "tags": {"pass": EVIL, EVIL: "x"},
        "role": "output",
        "dtype": "f32",
        "shape": [2, 3],
    }
    record.update(
        {
            "stats": None,
            "preview": [],
            "checksum": "",
            "file": "tensors/t.npy",
            "where": {"file": EVIL, "line": 1, "function": EVIL},
            "secs": 0,
        }
    )
    record.update(fields)
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    return recorded(folder / "one", 1.0), recorded(folder / "two", 2.0), folder


def clean(done, *, lines=()):
    """No control but line breaks and tabs, and no line that is not ours."""
    for stream in (done.stdout, done.stderr):
        assert not UNSAFE.search(stream), ascii(stream)
        assert not any(line.startswith("lockstep: MATCH") for line in stream.splitlines()), stream
    assert all(line in done.stdout + done.stderr for line in lines)
    return done


def test_comparisons(runs):
    one, two, _ = runs
    for options in ((), ("--all",), ("--json",)):
        assert clean(run("compare", one, two, *options)).returncode == 1
        assert clean(run("compare", one, one, *options)).returncode == 0
    assert "\\x1b" in run("compare", one, two, "--all").stdout


def test_runs_commands(runs):
    one, _, folder = runs
    home = folder / "home"
    if not home.exists():
        shutil.copytree(one, home / "runs" / "one")
    for words in (
        ("runs", "show", one),
        ("runs", "list"),
        ("runs", "show", "one"),
        ("runs", "show", one, "--verify"),
        ("runs", "show", "latest:" + EVIL.replace("\n", "")),
    ):
        for options in ((), ("--json",), ("--verbose",)):
            clean(run("--home", home, *words, *options))


def test_weights_and_tensors(tmp_path):
    st = pytest.importorskip("safetensors.numpy")
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        st.save_file(
            {EVIL: np.full((4, 4), value, np.float32), "b": np.zeros(2, np.float32)},
            tmp_path / name / "model.safetensors",
            {"key" + EVIL: EVIL},
        )
    one, two = tmp_path / "one", tmp_path / "two"
    for words in (
        ("weights", "compare", one, two),
        ("weights", "list", one),
        ("weights", "report", one),
        ("weights", "info", one, EVIL),
        ("tensors", "list", one),
        ("tensors", "info", one),
        ("tensors", "show", one, EVIL),
        ("tensors", "stats", one),
        ("tensors", "diff", one, two, "--all"),
        ("tensors", "show", one, "nothing" + EVIL),
    ):
        for options in ((), ("--json",), ("--color", "never", "--verbose")):
            done = clean(run(*words, *options))
            assert done.returncode in (0, 1, 2), done.stderr


def test_messages_name_files_safely(tmp_path):
    for words in (
        ("tensors", "list", EVIL),
        ("runs", "show", EVIL),
        ("compare", EVIL, EVIL),
        (EVIL,),
        ("compare", "--" + EVIL, "a", "b"),
        ("--home", EVIL, "runs", "list"),
    ):
        for options in ((), ("--json",)):
            clean(run(*words, *options, cwd=tmp_path))


def test_the_page_holds_no_such_character(runs, tmp_path):
    one, two, _ = runs
    run("compare", one, two, "--report", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
    rows = report_rows(tmp_path / "page.html")
    assert rows["rows"]
    found = [ascii(text) for text in [*strings_of(data), *strings_of(rows)] if UNSAFE.search(text)]
    assert not found and not UNSAFE.search(page)


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_of(key)
            yield from strings_of(item)


def test_json_readers_get_the_name_itself(runs):
    one, two, _ = runs
    document = json.loads(run("compare", one, two, "--json").stdout)
    assert document["tensors"][0]["name"] == EVIL


def test_agents_get_no_such_character(runs, tmp_path):
    """In the answers of MCP, be they of runs, of what a program printed or of calls that fail."""
    one, two, _ = runs
    home = Home(tmp_path)
    script = home.write("talks.py", f"print({EVIL!r})\nraise ValueError({EVIL!r})\n")
    home.start(script)
    home.debug("continue")
    tools = [
        ("compare", {"reference": str(one), "candidate": str(two)}),
        ("runs_show", {"run": str(one)}),
        ("runs_show", {"run": EVIL}),
        (EVIL, {}),
        ("debug_log", {}),
        ("debug_status", {}),
        ("debug_eval", {"expression": repr(EVIL)}),
        ("debug_break", {"where": EVIL}),
    ]
    messages = [
        {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": EVIL, "version": "1"},
            },
        }
    ]
    messages += [
        {"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(tools, 1)
    ]
    try:
        sent = "".join(json.dumps(message) + "\n" for message in messages)
        done = subprocess.run(
            [PROGRAM, "mcp"],
            input=sent,
            cwd=tmp_path,
            env=home.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        clean(done)
        answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
        assert sorted(answers) == list(range(len(messages))), done.stdout
        assert "\\x1b" in json.dumps(answers[1]) and "\\x1b" in json.dumps(answers[5])  # they do hold the text
        found = [ascii(text) for answer in answers.values() for text in strings_of(answer) if UNSAFE.search(text)]
        assert not found
        logs = [path for path in home.home.rglob("*.log") if path.parent.name == "service"]
        assert not any(UNSAFE.search(path.read_text(errors="replace")) for path in logs)
    finally:
        home.close()
