"""Markdown to HTML for our own documents: a small, strict subset.

Headings, paragraphs, fenced and indented code, lists (nested by indentation), tables, block quotes, comments; and inside
a line: `code`, **strong**, *emphasis*, links and pictures. Anything else that Markdown or HTML would treat specially is
an error with its line, so that nothing is silently shown wrong.
"""

import html
import re

FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
HEADING = re.compile(r"^(#{1,4}) (.+)$")
ITEM = re.compile(r"^(\s*)([-*]|\d+\.) +(.*)$")
RULE = re.compile(r"^\|(?: *:?-+:? *\|)+$")
CODE_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")
IMAGE = re.compile(r"!\[([^]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")
STRONG = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])")
TAG = re.compile(r"<[A-Za-z/!]")
HELD = re.compile("\x00(\\d+)\x00")


class MarkdownError(Exception):
    pass


def anchor_of(text, taken):
    """The name of a heading, made as code hosts do: lower case, words joined by hyphens."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", text)
    name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
    number, unique = 0, name
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique)
    return unique


def plain_text(text):
    """What a reader sees of inline Markdown."""
    text = IMAGE.sub(r"\1", text)
    text = LINK.sub(r"\1", text)
    return re.sub(r"\*\*|`|(?<!\w)\*|\*(?!\w)", "", text).replace("\\|", "|")


class Renderer:
    """`link(target)` and `image(target)` give the address for a target of the document, or raise MarkdownError."""

    def __init__(self, link, image):
        self.link, self.image = link, image
        self.anchors = set()
        self.sections = []  # [level, anchor, title, text]: what a search looks through
        self.lines, self.at = [], 0

    def render(self, text):
        self.lines, self.at = text.splitlines(), 0
        out = []
        try:
            while self.at < len(self.lines):
                out.append(self.block(""))
        except MarkdownError as error:
            raise MarkdownError(f"line {min(self.at + 1, len(self.lines))}: {error}") from None
        return "".join(out)

    # Blocks. `indent` is what every line of the list item that we are in begins with.

    def block(self, indent):
        line = self.lines[self.at].removeprefix(indent)
        if not line.strip():
            self.at += 1
            return ""
        if line.startswith("<!--"):
            return self.comment()
        if FENCE.match(line):
            return self.fenced()
        if HEADING.match(line):
            return self.heading(line)
        if line.startswith("|"):
            return self.table(indent)
        if line.startswith("> "):
            return self.quote(indent)
        if ITEM.match(line):
            return self.list(indent)
        if line.startswith("    "):
            return self.indented(indent)
        return self.paragraph(indent)

    def comment(self):
        while "-->" not in self.lines[self.at]:
            self.at += 1
            if self.at == len(self.lines):
                raise MarkdownError("a comment without an end")
        self.at += 1
        return ""

    def heading(self, line):
        marks, title = HEADING.match(line).groups()
        if self.sections and len(marks) > self.sections[-1][0] + 1:
            raise MarkdownError(f"a heading of level {len(marks)} below one of level {self.sections[-1][0]}")
        anchor = anchor_of(title, self.anchors)
        self.sections.append([len(marks), anchor, plain_text(title), ""])
        self.at += 1
        level = len(marks)
        return (
            f'<h{level} id="{anchor}">{self.inline(title)} '
            f'<a class="anchor" href="#{anchor}" aria-label="link to this section">#</a></h{level}>\n'
        )

    def fenced(self):
        indent, language = FENCE.match(self.lines[self.at]).groups()
        self.at += 1
        body = []
        while self.at < len(self.lines) and self.lines[self.at].strip() != "```":
            body.append(self.lines[self.at].removeprefix(indent))
            self.at += 1
        if self.at == len(self.lines):
            raise MarkdownError("a code block without an end")
        self.at += 1
        return self.code(body, language)

    def indented(self, indent):
        body = []
        while self.at < len(self.lines) and (
            self.lines[self.at].startswith(indent + "    ") or not self.lines[self.at].strip()
        ):
            body.append(self.lines[self.at].removeprefix(indent + "    "))
            self.at += 1
        while not body[-1].strip():
            body.pop()
        return self.code(body, "")

    def code(self, body, language):
        self.note("\n".join(body))
        shown = [html.escape(line, quote=False) for line in body]
        if language in ("console", "sh"):
            shown = [prompt_line(line) for line in shown]
        if language == "diff":
            shown = [diff_line(line) for line in shown]
        text = "\n".join(shown)
        return f'<pre tabindex="0"><code>{text}\n</code></pre>\n'

    def quote(self, indent):
        parts = []
        while self.at < len(self.lines) and self.lines[self.at].removeprefix(indent).startswith(">"):
            parts.append(self.lines[self.at].removeprefix(indent)[1:].strip())
            self.at += 1
        return f"<blockquote><p>{self.inline(' '.join(parts))}</p></blockquote>\n"

    def table(self, indent):
        rows = []
        while self.at < len(self.lines) and self.lines[self.at].removeprefix(indent).startswith("|"):
            rows.append(self.lines[self.at].removeprefix(indent).strip())
            self.at += 1
        if len(rows) < 2 or not RULE.match(rows[1]):
            raise MarkdownError("a table without a rule below its first row")
        head, *body = (self.cells(row) for row in rows[:1] + rows[2:])
        for row in body:
            if len(row) != len(head):
                raise MarkdownError(f"a row of {len(row)} cells in a table of {len(head)}: {' | '.join(row)[:60]}")
        made = '<div class="table" tabindex="0"><table>\n'
        if any(head):
            # A column without a title has no header that a screen reader could announce.
            titles = (f"<th>{self.inline(cell)}</th>" if cell.strip() else "<td></td>" for cell in head)
            made += "<thead><tr>" + "".join(titles) + "</tr></thead>\n"
        made += "<tbody>\n"
        for row in body:
            made += "<tr>" + "".join(f"<td>{self.inline(cell)}</td>" for cell in row) + "</tr>\n"
        return made + "</tbody></table></div>\n"

    def cells(self, row):
        if not row.endswith("|"):
            raise MarkdownError(f"a row that does not end in |: {row[:60]}")
        return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row[1:-1])]

    def list(self, indent):
        spaces, mark, _ = ITEM.match(self.lines[self.at]).groups()
        ordered = mark not in "-*"
        items = []
        while self.at < len(self.lines):
            found = ITEM.match(self.lines[self.at])
            if not found or found.group(1) != spaces or (found.group(2) not in "-*") != ordered:
                break
            items.append(self.item(found))
        tag = "ol" if ordered else "ul"
        return f"<{tag}>\n" + "".join(f"<li>{item}</li>\n" for item in items) + f"</{tag}>\n"

    def item(self, found):
        inside = " " * found.start(3)
        words, parts = [found.group(3)], []
        self.at += 1
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip():
                after = next((later for later in self.lines[self.at :] if later.strip()), "")
                if not after.startswith(inside):
                    break
                self.at += 1
            elif not line.startswith(inside):
                break
            elif not parts and not starts_block(line.removeprefix(inside)):
                words.append(line.strip())
                self.at += 1
            else:
                parts.append(self.block(inside))
        return self.inline(" ".join(words)) + "".join(parts)

    def paragraph(self, indent):
        words = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip() or not line.startswith(indent) or (words and starts_block(line.removeprefix(indent))):
                break
            words.append(line.strip())
            self.at += 1
        return f"<p>{self.inline(' '.join(words))}</p>\n"

    # Inside a line.

    def note(self, text):
        if self.sections:
            self.sections[-1][3] += " " + text

    def inline(self, text):
        self.note(plain_text(text))
        held = []

        def hold(made):
            held.append(made)
            return f"\x00{len(held) - 1}\x00"

        def code(match):
            inside = match.group(2)
            if match.group(1) == "``":
                inside = inside.strip()
            return hold(f"<code>{html.escape(inside, quote=False)}</code>")

        def picture(match):
            words, target = match.groups()
            return hold(f'<img src="{html.escape(self.image(target))}" alt="{html.escape(restored(words))}">')

        def link(match):
            words, target = match.groups()
            address = self.link(target)
            inside = marked(words)
            return hold(f'<a href="{html.escape(address)}">{inside}</a>') if address else inside

        def marked(words):
            words = html.escape(words, quote=False)
            return EMPHASIS.sub(r"<em>\1</em>", STRONG.sub(r"<strong>\1</strong>", words))

        def restored(words):
            while HELD.search(words):
                words = HELD.sub(lambda match: held[int(match.group(1))], words)
            return words

        text = CODE_SPAN.sub(code, text)
        text = IMAGE.sub(picture, text)
        text = LINK.sub(link, text)
        if TAG.search(text):
            raise MarkdownError(f"HTML is not rendered: {text[TAG.search(text).start() :][:40]}")
        if "`" in text:
            raise MarkdownError(f"a ` without its partner: {text[text.index('`') :][:40]}")
        return restored(marked(text))


def starts_block(line):
    return bool(FENCE.match(line) or HEADING.match(line) or ITEM.match(line) or line.startswith(("|", "> ", "<!--")))


def prompt_line(line):
    """A prompt is shown and not copied."""
    return f'<span class="prompt">$ </span>{line[2:]}' if line.startswith("$ ") else line


def diff_line(line):
    kind = {"+": "added", "-": "removed"}.get(line[:1])
    return f'<span class="{kind}">{line}</span>' if kind else line
