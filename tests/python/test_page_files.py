"""How the page is served: without a token, compressed, kept for ever under an address that names its content, and nothing else."""

import gzip
import http.client
import pathlib
import re
import subprocess
import sys

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
    return re.search(r"/web/([0-9a-f]{16})/page\.js", raw(home, "/")[2].decode()).group(1)


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


@needs_browser
@pytest.mark.parametrize(
    "route",
    [
        "runs",
        "runs/one",
        "runs/latest:one",
        "compare",
        "compare?candidate=one&row=0&reference=one",
        "debug",
        "draw",
        "server",
        "",
    ],
)
def test_a_view_takes_three_files_and_its_first_question_is_asked_at_once(started, home, route):  # noqa: F811
    if not (home.home / "runs" / "one").exists():
        write_many(home.home / "runs" / "one", ["x"], [np.ones((2, 2), np.float32)])
    with tab(started, home) as one:
        asked = []
        one.page.on("request", lambda r: asked.append(r.url.removeprefix(one.base)))
        page = one.open(route)
        # Asked from outside: the page's own policy lets nobody evaluate a string in it again and again.
        wait_until(lambda: page.evaluate("Boolean(document.querySelector('main > *')) && window.asked?.size === 0"))
        files = [url.split("/", 3)[3] for url in asked if url.startswith("/web/")]
        assert sorted(set(files)) == ["page.js", "start.js", "style.css"] and len(files) == len(set(files))
        questions = [url for url in asked if url.startswith("/v1/")]
        assert len(questions) == len(set(questions)), "nothing is asked twice"
        one.check()


def joined(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.js"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import join_modules; print(join_modules.join({str(folder)!r}, 'app.js'))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


MODULES = {
    "app": 'import {order, twice} from "./base/one.js";\nimport "./base/two.js";\nimport {A, B} from "./base/three.js";\n'
    'const name = "later";\nglobalThis.told = import(`./views/${name}.js`).then(m => [...order, m.late, twice(A), B]);\n',
    "base__one": "export const order = [];\nexport function twice(x) {\n  return 2 * x;\n}\n",
    "base__two": 'import {order} from "./one.js";\norder.push("two");\n',
    "base__three": 'import {order} from "./one.js";\nexport const A = 1, B = 2;\norder.push("three");\n',
    "views__later": 'import {order, twice} from "../base/one.js";\norder.push("later");\nexport const late = twice(21);\n',
    "views__other": "export class Other {}\n",
}


@needs_browser
def test_joined_modules_do_what_they_do_alone(started, tmp_path):  # noqa: F811
    """In the order of their imports, each once, what is imported later when it is asked for."""
    made = joined(tmp_path / "web", **MODULES)
    assert made.returncode == 0, made.stderr
    (tmp_path / "web" / "page.js").write_text(made.stdout)
    answers = []
    context = started.new_context()
    try:
        for file in ("app.js", "page.js"):
            page = context.new_page()

            def serve(route):
                path = tmp_path / "web" / route.request.url.removeprefix("http://joined.test/")
                if path.is_file():
                    return route.fulfill(body=path.read_text(), content_type="text/javascript")
                return route.fulfill(
                    body=f'<script type="module" src="/{file}"></script>',
                    content_type="text/html",  # noqa: B023
                )

            page.route("http://joined.test/**", serve)
            page.goto("http://joined.test/")
            answers.append(page.evaluate("told"))
    finally:
        context.close()
    assert answers[0] == answers[1] == ["two", "three", "later", 42, 2, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base__one": 'import {late} from "../views/later.js";\nexport const order = [late];\n'}, "circle"),
        ({"base__one": "export let order = [];\n"}, "exports a class, a constant or a function"),
        ({"base__one": "export default 1;\n"}, "exports a class, a constant or a function"),
        ({"app": 'import {\n  order} from "./base/one.js";\n'}, "an import is one line"),
        ({"app": 'import * as one from "./base/one.js";\n'}, "an import is one line"),
        ({"app": 'import {order as mine} from "./base/one.js";\n'}, "names as they are"),
        ({"app": 'import {order} from "./base/none.js";\n'}, "which is not there"),
        ({"app": 'await fetch("/");\n'}, "cannot wait at its top"),
    ],
)
def test_modules_that_would_mean_something_else_are_not_joined(tmp_path, change, words):
    made = joined(tmp_path / "web", **{**MODULES, **change})
    assert made.returncode != 0 and words in made.stderr
