"""What the page runs itself: the line inside a call, a finer record, the ledger, and two programs in step."""

import subprocess
import sys

import pytest
from debug_service import Home, wait_until
from page_browser import expect, needs_browser, started, tab  # noqa: F401
from program import PROGRAM

pytest.importorskip("torch")
pytestmark = needs_browser

REFERENCE = """import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.lin = torch.nn.Linear(16, 16)

    def forward(self, x):
        scale = 1.0
        h = self.lin(self.norm(x) * scale)
        return x + h

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

net = Net()
x = torch.randn(2, 16)
with torch.no_grad():
    y = net(x)
print("sum", round(float(y.sum()), 4))
"""
WRONG = REFERENCE.replace("net = Net()", "net = Net()\nbad = id(net.blocks[1])").replace(
    "scale = 1.0", "scale = 1.05 if id(self) == bad else 1.0"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("programs"))
    for name, text in (("reference", REFERENCE), ("port", WRONG)):
        home.write(f"{name}.py", text)
        subprocess.run(
            [PROGRAM, "--quiet", "record", "--inputs", "--name", name, "--", sys.executable, f"{name}.py"],
            cwd=home.folder,
            env=home.environment,
            check=True,
            timeout=120,
        )
    home.ensure()
    yield home
    home.close()


@pytest.fixture
def compared(started, place):  # noqa: F811
    with tab(started, place) as one:
        page = one.open("compare?reference=latest:reference&candidate=latest:port")
        expect(page.locator("#verdict")).to_have_text("Mismatch")
        yield page
        one.check()


def test_the_line_is_found(compared):
    compared.get_by_role("button", name="Find the line").click()
    region = compared.locator(".region").first
    expect(region).to_be_visible(timeout=120_000)
    expect(region.locator(".yours pre.named").first).to_contain_text("self.norm(x) * scale")


def test_the_call_is_recorded_finer(compared, place):
    compared.locator("summary", has_text="Record this finer").click()
    box = compared.locator("details", has_text="Record this finer")
    expect(box.locator("code")).to_contain_text("lockstep record --inputs --modules")
    box.get_by_role("button", name="Run it").click()
    expect(box).to_contain_text("exit status 0", timeout=120_000)
    before = compared.evaluate("location.hash")
    box.get_by_role("button", name="Compare with it").click()
    wait_until(lambda: compared.evaluate("location.hash") != before)
    expect(compared.locator("#verdict")).to_have_text("Mismatch")
    fine = place.get(
        "runs/show",
        run=compared.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('candidate')"),
        limit=1000,
    )
    assert fine["records"] and all("blocks.1" in r["name"] for r in fine["records"]), "only the call that was asked for"
    place.run("runs", "remove", fine["run"]["id"])


def test_the_ledger_names_the_source(compared):
    compared.locator("summary", has_text="Error ledger").click()
    box = compared.locator("details", has_text="Error ledger")
    box.get_by_role("button", name="Run it").click()
    expect(box).to_contain_text("sources:", timeout=120_000)
    expect(box.locator("tr.source").first).to_contain_text("blocks.1.lin")
    # The record is there now: another reader need not run the program again.
    box.get_by_role("button", name="Show the ledger").click()
    expect(box.locator("tr.source").first).to_contain_text("blocks.1.lin")


@pytest.mark.parametrize("width", [1280, 390])
def test_two_programs_in_step_part_side_by_side(started, place, width):  # noqa: F811
    place.debug(
        "twin",
        "start",
        place.folder / "reference.py",
        place.folder / "port.py",
        "--python",
        place.python,
        "--name",
        f"pair{width}",
    )
    with tab(started, place, width=width) as one:
        page = one.open("debug")
        page.get_by_role("link", name=f"pair{width}", exact=True).click()
        for side in ("Reference", "Candidate"):
            expect(page.get_by_role("region", name=side).locator("pre.named")).to_contain_text("import torch")
        page.keyboard.press("F5")
        expect(page.get_by_text("They part here")).to_be_visible(timeout=120_000)
        expect(page.locator(".card.error")).to_contain_text("blocks.1.lin, call 0: relative error")
        for side in ("Reference", "Candidate"):
            expect(page.get_by_role("region", name=side).locator("pre.named")).to_contain_text(
                "h = self.lin(self.norm(x) * scale)"
            )
        row = page.locator("tr", has_text="scale")
        expect(row).to_contain_text("1.05")
        expect(row).to_have_class("differs")
        page.get_by_label("evaluate in both").fill("self.norm(x) * scale")
        page.keyboard.press("Enter")
        expect(page.locator(".facts")).to_contain_text("0.05000")
        page.get_by_role("button", name="Put the reference's tensor in place").click()
        expect(page.get_by_role("region", name="Candidate")).to_contain_text("ended, status 0", timeout=120_000)
        one.check()
