"""The documents as a site: the Markdown that is rendered and refused, links, and the site that the program serves."""

import gzip
import html.parser
import http.client
import subprocess
import sys
import urllib.parse

import pytest
from debug_service import Home
from page_browser import expect, needs_browser, started, tab  # noqa: F401
from program import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from docs_markdown import MarkdownError, Renderer  # noqa: E402
from docs_site import Site  # noqa: E402


def rendered(text):
    return Renderer(lambda target: "to:" + target, lambda target: "pic:" + target).render(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a *b* **c** `d*e*` 1 * 2 * 3", "<p>a <em>b</em> <strong>c</strong> <code>d*e*</code> 1 * 2 * 3</p>\n"),
        ("a < b & c", "<p>a &lt; b &amp; c</p>\n"),
        ("`<script>` and ``a`b``", "<p><code>&lt;script&gt;</code> and <code>a`b</code></p>\n"),
        ("[a `b`](c.md) [d](e)", '<p><a href="to:c.md">a <code>b</code></a> <a href="to:e">d</a></p>\n'),
        ('![one "two"](p.png)', '<p><img src="pic:p.png" alt="one &quot;two&quot;"></p>\n'),
        ('[x](a"onclick)', '<p><a href="to:a&quot;onclick">x</a></p>\n'),
        ("one\ntwo\n\nthree", "<p>one two</p>\n<p>three</p>\n"),
        ("- a\n  b\n- c\n  - d\n\ne", "<ul>\n<li>a b</li>\n<li>c<ul>\n<li>d</li>\n</ul>\n</li>\n</ul>\n<p>e</p>\n"),
        ("1. a\n2. b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>\n"),
        ("text:\n- a", "<p>text:</p>\n<ul>\n<li>a</li>\n</ul>\n"),
        ("```json\n<a>\n```", '<pre tabindex="0"><code>&lt;a&gt;\n</code></pre>\n'),
        ("```console\n$ ls\n```", '<pre tabindex="0"><code><span class="prompt">$ </span>ls\n</code></pre>\n'),
        ("```diff\n-a\n+b\n```", '<pre tabindex="0"><code><span class="removed">-a</span>\n<span class="added">+b</span>\n</code></pre>\n'),
        ("    code\n\n    more\n\ntext", '<pre tabindex="0"><code>code\n\nmore\n</code></pre>\n<p>text</p>\n'),
        ("<!-- a\nb -->\nc", "<p>c</p>\n"),
        ("> a\n> b", "<blockquote><p>a b</p></blockquote>\n"),
    ],
)  # fmt: skip
def test_what_is_rendered(text, made):
    assert rendered(text) == made


def test_tables_and_their_pipes():
    made = rendered("| a | b |\n|---|---|\n| `x\\|y` | |\n")
    assert "<th>a</th><th>b</th>" in made and "<td><code>x|y</code></td><td></td>" in made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a <b>c</b>", "HTML is not rendered"),
        ("one ` two", "without its partner"),
        ("| a | b |\n|---|---|\n| c |", "a row of 1 cells in a table of 2"),
        ("| a |\n| b |", "a table without a rule"),
        ("```\nnever ends", "a code block without an end"),
        ("# a\n\n### b", "a heading of level 3 below one of level 1"),
        ("<!-- never ends", "a comment without an end"),
    ],
)
def test_what_is_refused(text, says):
    with pytest.raises(MarkdownError, match=says) as refused:
        rendered(text)
    assert str(refused.value).startswith("line ")


def test_headings_have_names_that_do_not_clash():
    renderer = Renderer(str, str)
    made = renderer.render("# One `two`: three!\n\n## A\n\n## A\n")
    assert 'id="one-two-three"' in made and 'id="a"' in made and 'id="a-1"' in made
    assert [section[:3] for section in renderer.sections] == [[1, "one-two-three", "One two: three!"], [2, "a", "A"], [2, "a-1", "A"]]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing.md", "which does not exist"),
        ("../../../etc/passwd", "which does not exist"),
        ("zoom.md#no-such-heading", "has no heading"),
        ("../LICENSE#x", "which is not a page"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path, monkeypatch, target, says):
    site = Site(tmp_path / "site")
    link = site.link

    def with_another(page, ours):
        if page == "docs/porting.md":
            link(page, target)
        return link(page, ours)

    monkeypatch.setattr(site, "link", with_another)
    with pytest.raises(MarkdownError, match=says):
        site.make()


def test_equal_documents_give_equal_files(tmp_path):
    for name in ("one", "two"):
        done = subprocess.run([sys.executable, ROOT / "tools" / "docs_site.py", tmp_path / name], capture_output=True)
        assert done.returncode == 0, done.stderr
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) > 30
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


# As served.


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("docs"))
    home.ensure()
    yield home
    home.close()


def raw(home, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", home.service()["port"], timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.links += [named[key] for key in ("href", "src") if key in named]
        self.ids |= {named["id"]} if "id" in named else set()


def test_every_link_of_the_served_site_leads_somewhere(place):
    status, headers, _ = raw(place, "/docs")
    assert status == 302 and headers["Location"] == "/docs/"
    seen, waiting, outside = {}, ["/docs/"], set()
    wanted = []
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        status, headers, body = raw(place, path)
        assert status == 200, path
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';") and "unsafe" not in policy
        seen[path] = Links(body.decode()) if headers["Content-Type"].startswith("text/html") else None
        for link in seen[path].links if seen[path] else ():
            if link.startswith("http"):
                outside.add(urllib.parse.urlsplit(link).hostname)
                continue
            whole = urllib.parse.urlsplit(urllib.parse.urljoin(path, link))
            wanted.append((path, whole.path, whole.fragment))
            waiting.append(whole.path)
    for page, path, fragment in wanted:
        assert not fragment or fragment in seen[path].ids, f"{page} links to {path}#{fragment}"
    assert len(seen) > 40 and "/docs/from_noise_to_a_picture.html" in seen and "/docs/images/from_noise.png" in seen
    assert not {"127.0.0.1", "localhost"} & outside


def test_the_site_is_compressed_kept_and_open_to_anybody(place):
    status, headers, body = raw(place, "/docs/cli.html", **{"Accept-Encoding": "gzip"})
    assert status == 200 and headers["Content-Encoding"] == "gzip" and headers["Cache-Control"] == "no-cache"
    assert gzip.decompress(body) == raw(place, "/docs/cli.html")[2]
    assert raw(place, "/docs/cli.html", **{"If-None-Match": headers["ETag"]})[0] == 304
    status, headers, body = raw(place, "/docs/images/from_noise.png", **{"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in headers and body == (ROOT / "docs/images/from_noise.png").read_bytes()
    for path in ("/docs/nothing.html", "/docs/../v1/health", "/docs/%2e%2e/secret", "/docsx"):
        assert raw(place, path)[0] in (400, 401, 404), path
    assert raw(place, "/docs/", method="POST")[0] == 401
    assert raw(place, "/docs/", Host="evil.example")[0] == 403


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_search_and_links_in_a_browser(started, place, width, scheme):  # noqa: F811
    with tab(started, place, width=width, scheme=scheme) as one:
        page = one.page
        page.goto(f"{one.base}/docs/")
        page.keyboard.press("/")
        page.keyboard.type("half-split")
        results = page.locator("#results a")
        expect(results.first).to_be_visible()
        assert any("half-split" in text.lower() for text in results.all_inner_texts())
        page.keyboard.press("Enter")
        page.wait_for_url("**/docs/*")
        expect(page.locator("main")).to_contain_text("half", ignore_case=True)
        if width < 760:
            page.locator("nav summary").click()
        page.locator("nav a", has_text="From noise to a picture").click()
        expect(page.locator("h1")).to_contain_text("From noise to a picture")
        names = page.locator("nav a").evaluate_all("links => links.map(a => a.href)")
        assert len(names) > 25
        for address in names:
            page.goto(address)
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)"), address
            one.check()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_passes_axe(started, place, scheme):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with tab(started, place, scheme=scheme, bypass_csp=True) as one:
        for name in ("", "diagnosis.html", "from_noise_to_a_picture.html"):
            one.page.goto(f"{one.base}/docs/{name}")
            one.page.locator("#search").fill("rotary")
            wrong = axe.run(one.page).response["violations"]
            assert not wrong, [(w["id"], n["html"][:160]) for w in wrong for n in w["nodes"]]
