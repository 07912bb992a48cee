"""Fails on Markdown that is hard to read: lines over 120 characters, and sentences over 30 words.

    check_markdown.py [--wrap] [FILE...]     without names: every Markdown file of the repository

A line may be longer where Markdown cannot break it: a row of a table, a line that is one link or picture, a command with
a quoted argument that is long itself, and what a program prints. Sentences are counted in README.md and docs/, without code, with `code` and links as words.
docs/cli.md is made from the program's help; only its lines are looked at. --wrap wraps paragraphs and list items that
have a line too long, and leaves everything else as it is.
"""

import pathlib
import re
import shlex
import sys
import textwrap

MOST_COLUMNS, MOST_ROW_COLUMNS, MOST_WORDS = 120, 260, 30
ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = ("build", ".venv", "target", "third_party", ".git", "dist")
FENCE = re.compile(r"^\s*(```|~~~)(\w*)")
ONE_LINK = re.compile(r"^\s*(?:[-*] |> )?!?\[[^]]*\]\([^)]*\)[.,:]?\s*$|^\s*\[[^]]+\]: \S+$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.", re.I)


def blocks(text):
    """(line number, kind, text): each line of code and of tables alone, and each paragraph, heading or list item whole."""
    fence, paragraph, first = None, [], 0
    lines = text.splitlines()

    def flush():
        nonlocal paragraph
        if paragraph:
            yield first, "text", " ".join(paragraph)
        paragraph = []

    for number, line in enumerate(lines, 1):
        mark = FENCE.match(line)
        if fence is None and mark:
            yield from flush()
            fence = mark.group(1)
        elif fence is not None:
            if mark and mark.group(1) == fence and not mark.group(2):
                fence = None
        elif not line.strip():
            yield from flush()
        elif line.lstrip().startswith("|"):
            yield from flush()
            yield number, "row", line.strip()
        elif line.startswith("#"):
            yield from flush()
            yield number, "text", line.lstrip("# ")
        elif line.startswith("    ") and not paragraph:
            continue  # indented code
        else:
            if ITEM.match(line):
                yield from flush()
            if not paragraph:
                first = number
            paragraph.append(ITEM.sub("", line).strip().removeprefix("> "))
    yield from flush()


def words_of(sentence):
    return [word for word in sentence.split() if re.search(r"\w", word)]


def sentences(text):
    text = re.sub(r"``[^`]*``|`[^`]*`", "Code", text)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return SENTENCE_END.split(ABBREVIATIONS.sub(lambda match: match.group().replace(".", ""), text))


def one_long_word(line):
    """Whether a command holds a word, quoted as a rule, that leaves no place to break the line."""
    try:
        return line.startswith("$ ") and any(len(word) > MOST_COLUMNS // 2 for word in shlex.split(line))
    except ValueError:
        return False


def long_lines(text):
    inside = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if mark:
            inside = None if inside is not None else (mark.group(2) or "text")
        shown = inside in ("text", "json", "console") and not line.startswith("$ ")
        most = MOST_ROW_COLUMNS if line.lstrip().startswith("|") else MOST_COLUMNS
        if len(line) > most and not (ONE_LINK.match(line) or shown or one_long_word(line)):
            yield number, f"{len(line)} characters, at most {most}"


def long_sentences(text):
    for number, kind, block in blocks(text):
        parts = re.split(r"(?<!\\)\|", block.strip("|")) if kind == "row" else [block]
        for part in parts:
            for sentence in sentences(part):
                count = len(words_of(sentence))
                if count > MOST_WORDS:
                    yield (
                        number,
                        f"a sentence of {count} words, at most {MOST_WORDS}: {' '.join(sentence.split())[:60]} ...",
                    )


def wrapped_block(lines):
    """A paragraph or list item, with `code` kept in one piece."""
    mark = ITEM.match(lines[0])
    first = mark.group() if mark else re.match(r"\s*", lines[0]).group()
    words = " ".join([lines[0][len(first) :], *lines[1:]]).split()
    text, spans = " ".join(words), []

    def held(match):
        spans.append(match.group())
        return f"\x01{len(spans) - 1}\x02".ljust(len(match.group()), "\x03")

    text = re.sub(r"``[^`]+``|`[^`]+`", held, text)
    made = textwrap.wrap(
        text,
        MOST_COLUMNS - 2,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [re.sub("\x01(\\d+)\x02\x03*", lambda match: spans[int(match.group(1))], line) for line in made]


def wrapped(text):
    out, block, fence = [], [], False

    def flush():
        out.extend(wrapped_block(block) if any(len(line) > MOST_COLUMNS for line in block) else block)
        block.clear()

    for line in text.split("\n"):
        if FENCE.match(line):
            flush()
            fence = not fence
            out.append(line)
        elif fence or not line.strip() or line.lstrip().startswith(("|", "#", "<!--", "![")):
            flush()
            out.append(line)
        elif line.startswith("    ") and not block:
            out.append(line)  # indented code
        else:
            if ITEM.match(line):
                flush()
            block.append(line)
    flush()
    return "\n".join(out)


def complaints(path, name):
    text = path.read_text(encoding="utf-8")
    found = list(long_lines(text))
    if name == "README.md" or (name.startswith("docs/") and name != "docs/cli.md"):
        found += long_sentences(text)
    return [f"{name}:{number}: {what}" for number, what in sorted(found)]


def markdown_files():
    for path in sorted(ROOT.rglob("*.md")):
        if not any(part.startswith(SKIPPED) for part in path.relative_to(ROOT).parts):
            yield path


def main(names):
    wrap = "--wrap" in names
    found = []
    for path in [pathlib.Path(name).resolve() for name in names if name != "--wrap"] or markdown_files():
        if wrap and (text := path.read_text(encoding="utf-8")) != (new := wrapped(text)):
            path.write_text(new, encoding="utf-8")
        found += complaints(path, path.relative_to(ROOT).as_posix())
    print("\n".join(found) if found else "every line and sentence of the documents is short enough")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
