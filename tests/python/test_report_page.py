"""The report in a real browser: what a reader sees once its script has run."""

import shutil
import subprocess

import pytest
from test_compare import block, compare, normal, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")
def test_page_runs_and_shows_the_cause(tmp_path):
    x, shift, scale = normal(1, 12, 16), normal(16, seed=1), normal(16, seed=2)
    more = [(f"net.tail.{i}", "output", normal(4, 4, seed=i)) for i in range(3000)]
    a = write_run(tmp_path / "a", block(x, shift, scale) + more)
    b = write_run(tmp_path / "b", block(x, shift, scale, exchanged=True) + more)
    assert compare(a, b, "--report", tmp_path / "out.html").returncode == 1
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom",
                           f"file://{tmp_path}/out.html"], capture_output=True, text=True, timeout=120)  # fmt: skip
    page = done.stdout
    assert '<h1 id="verdict" class="bad">Mismatch</h1>' in page
    assert "modulate.shift_scale_exchanged" in page.split("<script>")[0]
    assert "3007 of 3007" in page
    rows = page.split('<tbody id="body">')[1].split("</tbody>")[0].count("<tr")
    assert 10 < rows < 200, "only the rows in view exist"
