"""tools/check_markdown.py: what is too long, what cannot be broken, and that wrapping changes nothing but lines."""

import sys

import pytest
from program import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import check_markdown  # noqa: E402

LONG = "word " * 30


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x" * 120, []),
        ("x" * 121, [1]),
        ("| " + "x" * 200 + " |", []),
        ("| " + "x" * 300 + " |", [1]),
        ("![a picture](" + "x" * 120 + ")", []),
        ("See [a page](" + "x" * 120 + ")", [1]),
        ("```text\n" + "x" * 200 + "\n```", []),
        ("```sh\n$ " + "x " * 80 + "\n```", [2]),
        ("```sh\n$ printf '" + "x " * 80 + "'\n```", []),
        ("```python\n" + "x" * 130 + "\n```\n" + "y" * 130, [2, 4]),
    ],
)
def test_lines(text, lines):
    assert [number for number, _ in check_markdown.long_lines(text)] == lines


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (LONG + "end.", 1),
        ("word " * 20 + "end. " + "word " * 20 + "end.", 0),
        ("word " * 20 + "end. lower case starts a sentence too, " + "word " * 14, 0),
        ("- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("- " + "word " * 20 + "\n  " + "word " * 20, 1),
        ("word " * 20 + "`" + "code " * 20 + "`", 0),
        ("| " + "word " * 20 + " | " + "word " * 20 + " |", 0),
        ("| " + LONG + "end |", 1),
        ("```\n" + LONG * 2 + "\n```", 0),
        ("word " * 20 + "e.g. " + "word " * 15, 1),
    ],
)
def test_sentences(text, count):
    assert len(list(check_markdown.long_sentences(text))) == count


def test_wrapping_moves_words_and_nothing_else():
    text = (
        "# T\n\n"
        + LONG * 2
        + "`a b c`\n\n- "
        + LONG * 2
        + "\n- short\n\n| "
        + LONG * 2
        + " |\n\n```\n"
        + LONG * 2
        + "\n```\n"
    )
    made = check_markdown.wrapped(text)
    assert made.split() == text.split() and check_markdown.wrapped(made) == made
    for line in made.splitlines():
        assert len(line) <= 120 or line.startswith("|") or line == LONG * 2
    short = "a\nb\n\n- c\n  d\n"
    assert check_markdown.wrapped(short) == short


def test_code_is_kept_in_one_piece():
    made = check_markdown.wrapped("word " * 22 + "`one two three four` " + "word " * 10)
    assert "`one two three four`" in made
