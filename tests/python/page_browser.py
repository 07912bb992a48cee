"""The page in a real browser: Debian's Chromium, driven by Playwright."""

import contextlib
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
try:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # a busy machine is no failure
except ImportError:
    expect = sync_playwright = None

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or sync_playwright is None, reason="no chromium or no playwright: ./dev setup installs both"
)


@contextlib.contextmanager
def browser():
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield started
        finally:
            started.close()


class Tab:
    """One tab of the page of a home's service, which notes everything that goes wrong in it."""

    def __init__(self, context, home):
        self.home, self.errors, self.outside, self.dialogs = home, [], [], []
        self.base = f"http://127.0.0.1:{home.service()['port']}"
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console",
            lambda m: (
                self.errors.append(m.text)
                if m.type == "error" and "Failed to load resource" not in m.text and "ERR_" not in m.text
                else None
            ),
        )
        self.page.on("dialog", lambda d: (self.dialogs.append(d.message), d.dismiss()))
        self.page.on(
            "request",
            lambda r: self.outside.append(r.url) if not r.url.startswith((self.base, "data:", "blob:")) else None,
        )

    def open(self, route, token=True):
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/#" + (f"token={self.home.token()}/{route}" if token else f"/{route}"))
        return self.page

    def check(self):
        assert not self.errors and not self.dialogs, (self.errors, self.dialogs)
        outside = [url for url in self.outside if url != "about:blank"]
        assert not outside, outside
        # Nothing is wider than the window.
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@contextlib.contextmanager
def tab(started, home, width=1280, height=860, scheme="light", **options):
    context = started.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    try:
        yield Tab(context, home)
    finally:
        context.close()


@pytest.fixture(scope="module")
def started():
    """One browser for all tests of a file; `place` is the file's own service."""
    with browser() as one:
        yield one


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["wide", "narrow"])
def view(request, started, place):
    width, scheme = request.param
    with tab(started, place, width=width, scheme=scheme) as one:
        yield one
        one.check()
