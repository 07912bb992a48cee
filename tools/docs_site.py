"""Makes the documents a small site: one HTML file a page, one style sheet, a search that needs no network.

    docs_site.py OUTPUT_FOLDER

Every link and anchor between pages is checked; one that leads nowhere fails. Equal documents give equal files. The
site is served by `lockstep serve` at /docs, and opens from a folder too.
"""

import html
import json
import pathlib
import posixpath
import re
import shutil
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from docs_markdown import MarkdownError, Renderer  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ROOT / "docs" / "site"
NAVIGATION = (
    ("Start", ("README.md", "docs/installing.md", "docs/from_noise_to_a_picture.md", "docs/porting.md",
               "docs/porting_to_mlx.md", "docs/pitfalls.md")),
    ("Find the bug", ("docs/diagnosis.md", "docs/zoom.md", "docs/reports.md", "docs/debugger.md", "docs/editors.md",
                      "docs/toolbox.md")),
    ("Draw", ("docs/editing.md", "docs/page.md", "docs/server.md", "docs/cluster.md", "models/tiny/README.md",
              "models/tiny-edit/README.md")),
    ("Reference", ("docs/cli.md", "docs/capture_format.md", "docs/formats.md", "docs/debugger_protocol.md")),
    ("Figures", ("docs/performance.md", "docs/performance_io.md", "docs/recording_cost.md", "docs/debugger_cost.md",
                 "benchmarks/ports/README.md", "benchmarks/faults/README.md")),
    ("Project", ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
)  # fmt: skip
MOST_SHOWN_BYTES = 64 << 10  # a file that a page links to, shown as it is
SHOWN = (".py", ".json", ".c", ".cpp", ".rs", ".txt", "")


def sources():
    """The pages, in the order of the navigation; a document that nobody put there is last."""
    listed = [name for _, names in NAVIGATION for name in names if (ROOT / name).exists()]
    return listed + sorted(
        name for path in (ROOT / "docs").glob("*.md") if (name := path.relative_to(ROOT).as_posix()) not in listed
    )


def address_of(source):
    """Where a document is in the site: flat, so that every link between pages is a name."""
    if source == "README.md":
        return "index.html"
    name = source.removesuffix(".md").removesuffix("/README").removeprefix("docs/")
    return name.replace("/", "-").lower() + ".html"


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.pages = {name: address_of(name) for name in sources()}
        self.shown = {}  # files that are linked and are no page: source, address
        self.wanted = []  # (page, address, anchor) to be checked when all pages are made
        self.anchors, self.titles, self.index = {}, {}, []

    def make(self):
        if self.folder.exists():
            shutil.rmtree(self.folder)
        (self.folder / "images").mkdir(parents=True)
        made = {name: self.render(name) for name in self.pages}
        for name, (body, sections) in made.items():
            self.write(self.pages[name], self.page(name, body, sections))
        for name, address in self.shown.items():
            self.write(address, self.shown_file(name))
        for page, address, anchor in self.wanted:
            if anchor not in self.anchors[address]:
                raise MarkdownError(f"{page}: {address} has no heading #{anchor}")
        for part in ("style.css", "search.js"):
            shutil.copyfile(PARTS / part, self.folder / part)
        # The page holds its icon in its address, which saves it a request; the documents share one file.
        address = re.search(r'rel="icon" href="data:image/svg\+xml,([^"]*)"', (ROOT / "web" / "index.html").read_text())
        (self.folder / "icon.svg").write_text(urllib.parse.unquote(address[1]))
        self.write("search_index.js", f"const searchIndex = {json.dumps(self.index, ensure_ascii=False)};\n")
        return len(made)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def render(self, name):
        renderer = Renderer(lambda target: self.link(name, target), lambda target: self.picture(name, target))
        try:
            body = renderer.render((ROOT / name).read_text(encoding="utf-8"))
            if not renderer.sections or renderer.sections[0][0] != 1:
                raise MarkdownError("a document begins with a heading of level 1")
        except MarkdownError as error:
            raise MarkdownError(f"{name}: {error}") from None
        address = self.pages[name]
        self.anchors[address] = renderer.anchors
        self.titles[name] = "Overview" if name == "README.md" else renderer.sections[0][2]
        for level, anchor, title, text in renderer.sections:
            place = address if level == 1 else f"{address}#{anchor}"
            self.index.append([place, self.titles[name], title, " ".join(text.split())])
        return body, renderer.sections

    def within(self, page, target):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if path.startswith("../") or not (ROOT / path).exists():
            raise MarkdownError(f"a link to {target}, which does not exist")
        return path

    def link(self, page, target):
        if target.startswith(("https://", "http://")):
            return target
        target, _, anchor = target.partition("#")
        path = page if not target else self.within(page, target)
        if (ROOT / path / "README.md").exists():
            path += "/README.md"
        if path in self.pages:
            if anchor:
                self.wanted.append((page, self.pages[path], anchor))
            return self.pages[path] + ("#" + anchor if anchor else "") if target else "#" + anchor
        if anchor:
            raise MarkdownError(f"a link into {target}, which is not a page")
        if (ROOT / path).is_dir():
            return self.show_folder(path)
        return self.show(path)

    def show(self, path):
        if pathlib.Path(path).suffix not in SHOWN or (ROOT / path).stat().st_size > MOST_SHOWN_BYTES:
            return None  # its words stay, without a link
        self.shown[path] = "file-" + path.replace("/", "-") + ".html"
        return self.shown[path]

    def show_folder(self, path):
        self.shown[path] = "files-" + path.replace("/", "-") + ".html"
        return self.shown[path]

    def picture(self, page, target):
        path = self.within(page, target)
        name = pathlib.Path(path).name
        copy = self.folder / "images" / name
        if copy.exists() and copy.read_bytes() != (ROOT / path).read_bytes():
            raise MarkdownError(f"two pictures are called {name}")
        shutil.copyfile(ROOT / path, copy)
        return f"images/{name}"

    # HTML

    def shown_file(self, path):
        files = [ROOT / path]
        if files[0].is_dir():
            files = [file for file in sorted(files[0].iterdir()) if file.suffix in SHOWN and file.is_file()]
        body = f"<h1>{html.escape(path)}</h1>\n"
        for file in files:
            if len(files) > 1 or (ROOT / path).is_dir():
                body += f"<h2>{html.escape(file.name)}</h2>\n"
            text = html.escape(file.read_text(encoding="utf-8"), quote=False)
            body += f'<pre tabindex="0"><code>{text}</code></pre>\n'
        return self.frame(path, body, "", None)

    def page(self, name, body, sections):
        inside = [(anchor, title) for level, anchor, title, _ in sections if level == 2]
        contents = ""
        if len(inside) > 2:
            items = "".join(f'<li><a href="#{anchor}">{html.escape(title)}</a></li>' for anchor, title in inside)
            contents = f'<aside aria-label="on this page"><p>On this page</p><ul>{items}</ul></aside>\n'
        return self.frame(self.titles[name], body, contents, name)

    def navigation(self, here):
        out = ""
        grouped = {name for _, names in NAVIGATION for name in names}
        groups = [*NAVIGATION, ("More", [name for name in self.pages if name not in grouped])]
        for title, names in groups:
            items = ""
            for name in names:
                if name in self.pages:
                    current = ' aria-current="page"' if name == here else ""
                    items += f'<li><a href="{self.pages[name]}"{current}>{html.escape(self.titles[name])}</a></li>'
            if items:
                out += f"<p>{title}</p><ul>{items}</ul>\n"
        return out

    def frame(self, title, body, contents, here):
        heading = "Lockstep" if here == "README.md" else f"{title} · Lockstep"
        return f"""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{html.escape(heading)}</title>
  <link rel="icon" href="icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="style.css">
  <script defer src="search_index.js"></script>
  <script defer src="search.js"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
  <a class="brand" href="index.html"><img src="icon.svg" alt="">Lockstep</a>
  <div class="search" role="search"><input id="search" type="search" placeholder="Search (press /)" aria-label="search the documents"
    autocomplete="off" spellcheck="false"><ol id="results" aria-label="results" hidden></ol></div>
</header>
<div class="columns">
<nav aria-label="documents"><details class="fold" open><summary>All pages</summary>
{self.navigation(here)}</details></nav>
<main id="content" tabindex="-1">
{body}</main>
{contents}</div>
</body>
</html>
"""


def main(folder):
    try:
        count = Site(pathlib.Path(folder)).make()
    except MarkdownError as error:
        print(f"[docs] {error}", file=sys.stderr)
        return 1
    print(f"{folder}: {count} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
