"""A folder with programs that are recorded with their operations and zoomed into."""

import json
import subprocess
import sys
import textwrap

import pytest
from program import PROGRAM

REFERENCE = """
import torch, torch.nn as nn, torch.nn.functional as F

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = (layer(x).view(b, n, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, n, width))

class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attention = Attention(width, 4)
        self.modulation = nn.Linear(width, 3 * width)

    def forward(self, x, condition):
        shift, scale, gate = self.modulation(F.silu(condition))[:, None].chunk(3, -1)
        hidden = self.norm(x) * (1 + scale) + shift
        x = x.clone()
        x += gate * self.attention(hidden)
        return x

if __name__ == "__main__":
    torch.manual_seed(0)
    model = Block()
    x, condition = torch.randn(2, 6, 16), torch.randn(2, 16)
    with torch.no_grad():
        result = model(x, condition)
    print(result.double().sum().item())
"""


class Place:
    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text, change=None):
        if change is not None:
            assert text.count(change[0]) == 1
            text = text.replace(*change)
        (self.folder / f"{name}.py").write_text(textwrap.dedent(text))
        return text

    def run(self, *words, status=0):
        done = subprocess.run(
            [PROGRAM, "--home", str(self.folder / "home"), *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def record(self, name, *options):
        return self.run("--quiet", "record", "--inputs", *options, "--name", name, "--", sys.executable, f"{name}.py")

    def zoom(self, candidate, *options, status=1):
        return json.loads(
            self.run("--json", "zoom", "latest:reference", f"latest:{candidate}", *options, status=status).stdout
        )


def line_of(text, part):
    return next(number for number, line in enumerate(textwrap.dedent(text).splitlines(), 1) if part in line)


def lines(region, side="yours"):
    return [one["line"] for one in region[side]]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("zoom"))
    made.write("reference", REFERENCE)
    made.record("reference", "--operations", "Block")
    return made
