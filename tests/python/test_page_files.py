"""How the page is served: without a token, compressed, kept for ever under an address that names its content, and nothing else."""

import gzip
import http.client
import pathlib
import re
import subprocess

import numpy as np
import pytest
from debug_service import Home, wait_until
from many_records import write_many
from page_browser import needs_browser, started, tab  # noqa: F401
from program import PROGRAM, ROOT

WEB = ROOT / "web"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    one = Home(tmp_path_factory.mktemp("files"))
    one.ensure()
    yield one
    one.close()


def raw(home, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", home.service()["port"], timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def version(home):
    return re.search(r"/web/([0-9a-f]{16})/app\.js", raw(home, "/")[2].decode()).group(1)


def test_the_page_comes_without_a_token_and_with_a_policy(home):
    status, headers, body = raw(home, "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy and "http" not in policy
    assert headers["Cache-Control"] == "no-cache" and headers["X-Content-Type-Options"] == "nosniff"
    assert b"@VERSION@" not in body and home.token().encode() not in body
    status, again, _ = raw(home, "/", **{"If-None-Match": headers["ETag"]})
    assert status == 304 and again["ETag"] == headers["ETag"]


def test_every_file_is_there_compressed_and_kept(home):
    now = version(home)
    for path in sorted(p for p in WEB.rglob("*") if p.is_file()):
        name = path.relative_to(WEB).as_posix()
        status, headers, body = raw(home, f"/web/{now}/{name}", **{"Accept-Encoding": "gzip, br"})
        assert status == 200 and headers["Content-Encoding"] == "gzip" and "immutable" in headers["Cache-Control"], name
        assert gzip.decompress(body) == path.read_bytes(), name
        assert raw(home, f"/web/{now}/{name}")[2] == path.read_bytes(), name


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/0000000000000000/app.js",
        "/web/{}/../../../etc/passwd",
        "/web/{}/%2e%2e/secret",
        "/web/{}/nothing.js",
        "/web/{}/",
        "//etc/passwd",
    ],
)
def test_nothing_else_is_served(home, path):
    status, _, body = raw(home, path.format(version(home)))
    assert status in (400, 401, 404) and b"root:" not in body


def test_everything_else_still_wants_the_token(home):
    for path in ("/v1/health", "/v1/runs/list", "/v1/tensors/heat?path=x", "/mcp", "/index.html", "/web"):
        assert raw(home, path)[0] == 401, path
    assert raw(home, "/", method="POST")[0] == 401
    assert raw(home, "/", Host="evil.example")[0] == 403
    assert raw(home, "/", Origin="http://evil.example")[0] == 403


def test_a_folder_serves_the_page_for_work_on_it(tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html>@VERSION@ mine")
    (folder / "a.js").write_text("1")
    (tmp_path / "secret.js").write_text("no")
    home = Home(tmp_path)
    with subprocess.Popen(
        [PROGRAM, "serve", "--web", folder], env=home.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            process.stderr.readline()
            assert raw(home, "/")[2] == b"<!doctype html>dev mine"
            status, headers, body = raw(home, "/web/dev/a.js")
            assert (status, body, headers["Cache-Control"]) == (200, b"1", "no-store")
            (folder / "a.js").write_text("2")
            assert raw(home, "/web/dev/a.js")[2] == b"2"
            assert raw(home, "/web/dev/../secret.js")[0] == 404
        finally:
            process.terminate()


def test_open_starts_the_browser_and_hides_the_token(tmp_path):
    """The browser is given a file that only we can read: its command line, which others can see, holds no token."""
    home = Home(tmp_path)
    seen = tmp_path / "seen"
    program = home.write("browser.sh", f'#!/bin/sh\necho "$@" > {seen}.part && mv {seen}.part {seen}\n')
    program.chmod(0o755)
    home.environment["BROWSER"] = str(program)
    home.ensure()
    try:
        home.run("serve", "--open")
        wait_until(seen.exists)
        told = seen.read_text().strip()
        assert home.token() not in told and told.startswith("file://")
        file = pathlib.Path(told.removeprefix("file://"))
        assert file.stat().st_mode & 0o077 == 0 and f"#token={home.token()}" in file.read_text()
    finally:
        home.close()


def test_no_file_asks_for_anything_outside_or_parses_markup():
    for path in WEB.rglob("*.js"):
        text = path.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\(\"on", text
        ), path
        assert not re.search(r"https?://", text), path
        assert len(text.splitlines()) < 500, path
        for line in text.splitlines():
            assert not line.startswith("import ") or line.endswith(";"), f"{path}: an import is one line, for reports"


def imported(name, seen):
    """A module and all that it imports, by their imports."""
    if name not in seen:
        seen.add(name)
        for found in re.findall(r'^import .*?"(\.[^"]+)";$', (WEB / name).read_text(), re.M):
            imported(((WEB / name).parent / found).resolve().relative_to(WEB).as_posix(), seen)
    return seen


@needs_browser
@pytest.mark.parametrize(
    ("route", "modules"),
    [
        ("runs", ["views/runs.js"]),
        ("runs/one", ["views/runs.js", "views/run.js"]),
        ("compare", ["views/compare.js"]),
        ("compare?candidate=one&row=0&reference=one", ["views/compare.js"]),
        ("runs/latest:one", ["views/runs.js", "views/run.js"]),
        ("debug", ["views/debug.js"]),
        ("draw", ["views/draw.js"]),
        ("server", ["views/server.js"]),
        ("", ["views/runs.js"]),
    ],
)
def test_all_files_of_a_view_and_its_first_question_are_asked_for_at_once(started, home, route, modules):  # noqa: F811
    write_many(home.home / "runs" / "one", ["x"], [np.ones((2, 2), np.float32)]) if not (
        home.home / "runs" / "one"
    ).exists() else None
    with tab(started, home) as one:
        asked = []
        one.page.on("request", lambda r: asked.append(r.url.removeprefix(one.base)))
        page = one.open(route)
        # Asked from outside: the page's own policy lets nobody evaluate a string in it again and again.
        wait_until(lambda: page.evaluate("Boolean(document.querySelector('main > *')) && window.asked?.size === 0"))
        early = page.evaluate(
            "[...document.querySelectorAll('link[rel=modulepreload]')].map(l => new URL(l.href).pathname.split('/').slice(3).join('/'))"
        )
        needed = set().union(*(imported(m, set()) for m in ["app.js", *modules])) - {"app.js"}
        assert set(early) == needed
        questions = [url for url in asked if url.startswith("/v1/")]
        assert len(questions) == len(set(questions)), "nothing is asked twice"
        one.check()
