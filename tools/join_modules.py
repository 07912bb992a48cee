"""Joins ES modules into one: what the browser would fetch file by file comes as one file, with the same meaning.

Each module becomes a function that runs once, when it is first needed, after those that it imports and in their order, as
the browser itself would run them. That holds for modules that need no more than this, and the rest is refused: imports and
exports are lines of their own, nobody imports in a circle, nothing that is exported changes, and nothing waits at the top.
"""

import pathlib
import re

IMPORT = re.compile(r'import (?:\{(?P<names>[^}]*)\} from )?"(?P<path>\.[^"]+)";')
EXPORT = re.compile(r"export (?P<rest>(?:class|const|function\*?|async function\*?) (?P<name>[\w$]+)\s*[ =({].*)", re.S)
DYNAMIC = re.compile(r"\bimport\(")

HEAD = """// The modules of web/, joined by tools/join_modules.py; they are served beside it as they are.
const modules = {}, done = new Map();
const need = path => {
  if (!done.has(path)) done.set(path, modules[path]());
  return done.get(path);
};
const later = async (folder, path) => need(new URL(path, `file:///${folder}`).pathname.slice(1));
"""


def resolved(importer, path):
    parts = list(pathlib.PurePosixPath(importer).parent.parts)
    for part in pathlib.PurePosixPath(path).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


class Module:
    def __init__(self, path, text):
        self.path, self.needs, self.exports, self.body = path, [], set(), []
        for line in text.splitlines():
            if line.startswith("import "):
                self.take_import(line)
            elif line.startswith("export "):
                self.take_export(line)
            else:
                if line.startswith("await "):
                    raise SystemExit(f"web/{path}: a joined module cannot wait at its top: {line}")
                self.body.append(line)

    def take_import(self, line):
        found = IMPORT.fullmatch(line)
        if not found:
            raise SystemExit(f'web/{self.path}: an import is one line, {{names}} from "./file.js"; got {line}')
        names = [name.strip() for name in (found["names"] or "").split(",") if name.strip()]
        if any(" as " in name for name in names):
            raise SystemExit(f"web/{self.path}: a joined module imports names as they are; got {line}")
        self.needs.append((resolved(self.path, found["path"]), names))

    def take_export(self, line):
        found = EXPORT.fullmatch(line)
        if not found:
            raise SystemExit(f"web/{self.path}: a joined module exports a class, a constant or a function; got {line}")
        self.exports.add(found["name"])
        self.body.append(found["rest"])

    def joined(self):
        folder = self.path[: self.path.rfind("/") + 1]
        imports = [
            f'const {{{", ".join(names)}}} = need("{path}");' if names else f'need("{path}");'
            for path, names in self.needs
        ]
        body = [DYNAMIC.sub(f'later("{folder}", ', line) for line in self.body]
        given = f"return {{{', '.join(sorted(self.exports))}}};"
        return "\n".join([f'modules["{self.path}"] = () => {{', *imports, *body, given, "};", ""])


def check(modules):
    """Nobody imports in a circle, and everything that is imported is there."""
    entered, left = set(), set()

    def visit(path, way):
        if path not in modules:
            raise SystemExit(f"web/{way[-1]}: imports {path}, which is not there")
        if path in left:
            return
        if path in entered:
            raise SystemExit(f"web/: these import each other in a circle: {' -> '.join([*way, path])}")
        entered.add(path)
        for needed, names in modules[path].needs:
            visit(needed, [*way, path])
            modules[needed].exports.update(names)  # of `export const A = 0, B = 1` too
        left.add(path)

    for path in sorted(modules):
        visit(path, [])


def join(folder, entry):
    """The text of one module that does what `entry` does, and holds all modules that it may ever import."""
    folder = pathlib.Path(folder)
    texts = {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.js"))}
    modules = {path: Module(path, text) for path, text in texts.items()}
    check(modules)
    wanted, left = set(), [entry]
    while left:
        path = left.pop()
        if path in wanted:
            continue
        wanted.add(path)
        left += [needed for needed, _ in modules[path].needs]
        for given in re.findall(r"\bimport\(([\"`])(\.[^\"`]+)\1\)", texts[path]):
            pattern = re.escape(resolved(path, given[1])).replace(re.escape("${name}"), r"\w+")
            left += [other for other in modules if re.fullmatch(pattern, other)]
    return HEAD + "".join(modules[path].joined() for path in sorted(wanted)) + f'need("{entry}");\n'
