"""Every promise of SECURITY.md names a test, and the test is there."""

import re

from program import ROOT

TEXT = (ROOT / "SECURITY.md").read_text()
DEFENDED = TEXT[TEXT.index("## What is defended") : TEXT.index("## What is not")]


def test_every_named_test_exists():
    named = re.findall(r"`([a-z_/]+\.(?:py|cpp)|fuzz/[a-z_]+|test_[a-z_0-9]+)`", DEFENDED)
    assert len(named) > 40
    functions = "\n".join(path.read_text() for path in (ROOT / "tests" / "python").glob("*.py"))
    for name in named:
        if name.startswith("fuzz/"):
            assert (ROOT / f"{name}.cpp").exists() and (ROOT / "fuzz" / "corpus" / name[5:]).is_dir(), name
        elif "." in name:
            assert (ROOT / "tests" / name).exists() or (ROOT / name).exists(), name
        else:
            assert f"def {name}(" in functions, name


def test_every_promise_names_one():
    promises = re.split(r"\n\s*- ", DEFENDED)[1:]
    assert len(promises) >= 12
    for promise in promises:
        assert re.search(r"`[^`]*(test_|fuzz/)[^`]*`", promise) or promise.startswith("**The service**"), promise
