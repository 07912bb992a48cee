#!/usr/bin/env python3
"""The table of causes of docs/diagnosis.md, made from src/diagnose/case/causes.h.

python3 tools/causes_table.py                            prints it
python3 tools/causes_table.py --write docs/diagnosis.md  puts it between the file's two markers
python3 tools/causes_table.py --check docs/diagnosis.md  fails where the file says something else
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "diagnose" / "case" / "causes.h"
BEGIN, END = "<!-- causes: made by tools/causes_table.py -->", "<!-- end of causes -->"
ENTRY = re.compile(r'^    \{"([a-z0-9_.]+)", "([^"]+)", "([^"]+)"(?:, true)?\},$', re.M)


def causes():
    """Every cause as (id, what it means, how it is mended)."""
    text = SOURCE.read_text()
    found = ENTRY.findall(text)
    start = text.index("kCauses[] = {")
    lines = text[start : text.index("\n};", start)].count("\n    {")
    if len(found) != lines:
        raise SystemExit(f"{SOURCE}: {lines} lines of the table, but {len(found)} could be read")
    return found


def table():
    rows = [f"| `{cause}` | {words} | {fix} |" for cause, words, fix in causes()]
    return "\n".join(["| cause | what is wrong with yours | usual fix |", "|---|---|---|", *rows])


def with_table(text):
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"expected the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in {"--write", "--check"}:
        print(table())
        return 0
    path = pathlib.Path(sys.argv[2])
    text = path.read_text()
    made = with_table(text)
    if sys.argv[1] == "--write":
        path.write_text(made)
    elif text != made:
        print(
            f"{path}: the table of causes is not that of {SOURCE.relative_to(ROOT)}; run tools/causes_table.py --write {path}"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
