"""For `lockstep prune`: what of installed packages a program opens, what it misses in a pruned copy, and function bodies cut out of files.

In a program it is started by sitecustomize; run as a script it cuts bodies, in the Python that the program uses.
"""

import ast
import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys

_MOST_PATHS = 200_000
_CODE = (".py", ".pyc")


class _Notes:
    """Paths, each once, written as the process goes: one that is killed has told what it needed."""

    def __init__(self, folder, kind):
        os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, f"{kind}-{os.getpid()}.jsonl"), "a", encoding="utf-8")
        self._seen = set()
        self._busy = False

    def add(self, path):
        if path in self._seen or len(self._seen) >= _MOST_PATHS or self._busy:
            return
        self._busy = True
        try:
            self._seen.add(path)
            self._file.write(json.dumps(path) + "\n")
            self._file.flush()
        except Exception:  # a disk that is full is not the program's trouble
            pass
        finally:
            self._busy = False


def watch(folder):
    """Notes the files that the program opens besides code, and those of its modules."""
    notes = _Notes(folder, "opened")
    notes.add(sys.executable)

    def hook(event, arguments):
        if event == "open" and arguments and isinstance(arguments[0], str) and not arguments[0].endswith(_CODE):
            notes.add(os.path.abspath(arguments[0]))

    def modules():
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                notes.add(os.path.abspath(file))

    sys.addaudithook(hook)
    atexit.register(modules)


class _PrunedFinder(importlib.abc.MetaPathFinder):
    """Takes the packages from the copy; what the copy misses comes from the original, and is noted."""

    def __init__(self, copy, originals, notes):
        self.copy, self.originals, self.notes = copy, originals, notes

    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        if top not in self.originals:
            return None
        parts = rest.split(".") if rest else []
        return self._spec(name, os.path.join(self.copy, top, *parts), None) or self._spec(
            name, os.path.join(self.originals[top], *parts), os.path.join(self.copy, top, *parts)
        )

    def _spec(self, name, place, instead):
        found = os.path.join(place, "__init__.py")
        if os.path.isfile(found):
            self._note(found, instead)
            return importlib.util.spec_from_file_location(name, found, submodule_search_locations=[instead or place])
        for suffix in (".py", *importlib.machinery.EXTENSION_SUFFIXES):
            if os.path.isfile(place + suffix):
                self._note(place + suffix, instead)
                return importlib.util.spec_from_file_location(name, place + suffix)
        return None

    def _note(self, found, instead):
        if instead is not None:
            self.notes.add(found)


def use_copy(description, folder):
    with open(description, encoding="utf-8") as file:
        told = json.load(file)
    copy, originals = told["copy"], told["originals"]
    notes = _Notes(folder, "missing")
    # Behind the recorder's own finder, which asks the others and then watches what they find.
    first = next(
        (
            index + 1
            for index, finder in enumerate(sys.meta_path)
            if type(finder).__module__ == "lockstep.agent.imports"
        ),
        0,
    )
    sys.meta_path.insert(first, _PrunedFinder(copy, originals, notes))

    def hook(event, arguments):
        """A file that the copy does not have and the original has."""
        if event != "open" or not arguments or not isinstance(arguments[0], str):
            return
        path = os.path.abspath(arguments[0])
        if not path.startswith(copy + os.sep) or path.endswith(".pyc"):
            return
        top, _, rest = path[len(copy) + 1 :].partition(os.sep)
        original = os.path.join(originals[top], rest) if top in originals else None
        if original and not os.path.exists(path) and os.path.isfile(original):
            notes.add(original)

    sys.addaudithook(hook)


# Cutting bodies.

_PLAIN_DECORATORS = {
    "property",
    "staticmethod",
    "classmethod",
    "abstractmethod",
    "no_grad",
    "cached_property",
    "setter",
    "overload",
    "lru_cache",
    "contextmanager",
    "wraps",
}


def _decorator_name(node):
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _docstring_counts(function):
    """A decorator that we do not know may read the docstring when the file is imported."""
    return any(_decorator_name(decorator) not in _PLAIN_DECORATORS for decorator in function.decorator_list)


class _Cutter:
    """Takes out of a source what never ran. A cut is (first line, last line, what stands there instead)."""

    def __init__(self, source, keep, place):
        self.lines = source.splitlines(keepends=True)
        self.keep, self.place = keep, place
        self.cuts, self.gone = [], []

    def visit(self, node, above):
        """`above`: the last line of what stands before the first statement inside."""
        for name in ("body", "orelse", "finalbody", "handlers"):
            end = above
            for child in getattr(node, name, []) if isinstance(getattr(node, name, []), list) else []:
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self._function(child, end)
                elif isinstance(child, ast.ClassDef):
                    self._class(child)
                elif isinstance(child, ast.If) and _is_for_checkers(child.test):
                    self._replace(
                        child.body, f"raise NotImplementedError({f'{self.place}:{child.lineno}'!r})", child.lineno
                    )
                    for inner in child.orelse:
                        self.visit(ast.Module([inner], []), None)
                else:
                    self.visit(child, None)
                end = child.end_lineno

    def _function(self, function, above):
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        if (first, function.name) in self.keep:
            self.visit(function, None)
            return
        what = f"raise NotImplementedError({f'{self.place}:{first} {function.name}'!r})"
        if _docstring(function) and _docstring_counts(function):
            if len(function.body) == 1 or not self._replace(function.body[1:], what, function.body[0].end_lineno):
                return
        elif self._is_short(function) or not self._collapse(function, what):
            return
        self.gone.append([first, function.name, 0])
        if above is not None:
            self._drop_remarks(above, first)

    def _is_short(self, function):
        return function.end_lineno == function.lineno

    def _class(self, node):
        ran = any(
            isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            and (min([inner.lineno, *(d.lineno for d in inner.decorator_list)]), inner.name) in self.keep
            for inner in ast.walk(node)
        )
        self.visit(node, node.body[0].lineno - 1 if not _docstring(node) else None)
        if (
            _docstring(node)
            and not ran
            and not node.decorator_list
            and len(node.body) > 1
            and node.body[0].lineno > node.lineno
        ):
            if node.body[1].lineno > node.body[0].end_lineno and not getattr(node.body[1], "decorator_list", []):
                self.cuts.append((node.body[0].lineno, node.body[0].end_lineno, []))

    def _collapse(self, function, what):
        """def and body in one line."""
        indent = self.lines[function.lineno - 1][: function.col_offset]
        if indent.strip():
            return False
        kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
        self.cuts.append(
            (
                function.lineno,
                function.end_lineno,
                [f"{indent}{kind} {function.name}({ast.unparse(function.args)}){returns}: {what}\n"],
            )
        )
        return True

    def _replace(self, body, what, above):
        """Statements on lines of their own."""
        start = min([body[0].lineno, *(decorator.lineno for decorator in getattr(body[0], "decorator_list", []))])
        indent = self.lines[start - 1][: body[0].col_offset]
        if start <= above or indent.strip() or self.lines[start - 2].rstrip().endswith("\\"):
            return False
        self.cuts.append((start, body[-1].end_lineno, [f"{indent}{what}\n"]))
        return True

    def _drop_remarks(self, above, first):
        """Comments on what is gone, and the empty lines before it."""
        start = first
        while start - 1 > above and (
            not self.lines[start - 2].strip() or self.lines[start - 2].lstrip().startswith("#")
        ):
            start -= 1
        if start < first:
            self.cuts.append((start, first - 1, []))


def _is_for_checkers(test):
    """TYPE_CHECKING, or that or an environment's wish to import everything at once."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return _is_for_checkers(test.values[0]) and all(
            isinstance(one, ast.Name) and "SLOW_IMPORT" in one.id for one in test.values[1:]
        )
    return isinstance(test, (ast.Name, ast.Attribute)) and (getattr(test, "id", None) or test.attr) == "TYPE_CHECKING"


def _docstring(node):
    first = node.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def cut_bodies(source, keep, place):
    """The source with each body gone whose function is not in `keep`, a set of (first line, name); and which went: first line, name,
    first line now."""
    cutter = _Cutter(source, keep, place)
    tree = ast.parse(source)
    cutter.visit(tree, None)
    # What precedes the first statement of a file is its licence.
    top = tree.body[0].end_lineno if tree.body else 0
    cuts = sorted(cut for cut in cutter.cuts if cut[2] or cut[0] > top)
    for start, end, instead in reversed(cuts):
        cutter.lines[start - 1 : end] = instead
    result = "".join(cutter.lines)
    ast.parse(result)  # what cannot be read is not written
    for one in cutter.gone:
        one[2] = one[0] - sum(end - start + 1 - len(instead) for start, end, instead in cuts if start < one[0])
    return result, cutter.gone


def _read(path):
    import tokenize

    with tokenize.open(path) as file:
        return file.read()


def main():
    """stdin: {"files": [{"original", "copy", "keep": [[line, name]], "place"}]}; stdout: what became of each."""
    told = json.load(sys.stdin)
    answers = []
    for one in told["files"]:
        try:
            source, gone = cut_bodies(
                _read(one["original"]), {(line, name) for line, name in one["keep"]}, one["place"]
            )
            descriptor = os.open(one["copy"], os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(source)
            answers.append({"gone": gone})
        except (OSError, ValueError, SyntaxError, RecursionError) as error:  # it stays whole
            answers.append({"error": str(error)})
    json.dump({"files": answers}, sys.stdout)


if __name__ == "__main__":
    main()
