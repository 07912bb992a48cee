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


def sentences():
    for promise in re.split(r"\n\s*- ", DEFENDED)[1:]:
        yield from re.split(r"(?<=[.)])\s+(?=[A-Z])", re.sub(r"\s+", " ", promise).strip())


def test_every_sentence_names_one():
    assert len(list(sentences())) > 40
    unproven = [one for one in sentences() if not re.search(r"`[^`]*(test_|fuzz/)[^`]*`", one)]
    assert not unproven, unproven
