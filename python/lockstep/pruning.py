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
    sys.meta_path.insert(0, _PrunedFinder(copy, originals, notes))

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

_PLAIN_DECORATORS = {"property", "staticmethod", "classmethod", "abstractmethod", "no_grad", "cached_property", "setter", "overload", "lru_cache", "contextmanager", "wraps"}


def _decorator_name(node):
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _docstring_counts(function):
    """A decorator that we do not know may read the docstring when the file is imported."""
    return any(_decorator_name(decorator) not in _PLAIN_DECORATORS for decorator in function.decorator_list)


def cut_bodies(source, keep, place):
    """The source with each body gone whose function is not in `keep`, a set of (first line, name); and which went: first line, name,
    first line now."""
    lines = source.splitlines(keepends=True)
    cuts, gone = [], []

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                if (first, child.name) in keep:
                    visit(child)
                else:
                    cut(child, first)
            else:
                visit(child)

    def cut(function, first):
        body = function.body
        start = body[0]
        has_docstring = isinstance(start, ast.Expr) and isinstance(start.value, ast.Constant) and isinstance(start.value.value, str)
        if has_docstring and _docstring_counts(function):
            if len(body) == 1:
                return
            start = body[1]
            if start.lineno <= body[0].end_lineno:
                return
        from_line = min([start.lineno, *(decorator.lineno for decorator in getattr(start, "decorator_list", []))])
        indent = lines[from_line - 1][: start.col_offset]
        # A body on the line of its def, a line that holds something else, one that is as short as what would stand there.
        if from_line <= function.lineno or indent.strip() or (function.end_lineno == from_line and not has_docstring):
            return
        header = lines[from_line - 2].rstrip() if from_line >= 2 else ""
        if header.endswith("\\"):
            return
        end = function.end_lineno
        if ";" in lines[end - 1] and lines[end - 1].rstrip().endswith(";"):
            return
        cuts.append((from_line, end, indent, f"{place}:{first} {function.name}"))
        gone.append([first, function.name, from_line])

    visit(ast.parse(source))
    for from_line, end, indent, what in sorted(cuts, reverse=True):
        lines[from_line - 1 : end] = [f"{indent}raise NotImplementedError({what!r})\n"]
    result = "".join(lines)
    ast.parse(result)  # what cannot be read is not written
    for one in gone:
        one[2] = one[0] - sum(end - from_line for from_line, end, *_ in cuts if from_line < one[0])
    return result, gone


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
            source, gone = cut_bodies(_read(one["original"]), {(line, name) for line, name in one["keep"]}, one["place"])
            descriptor = os.open(one["copy"], os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(source)
            answers.append({"gone": gone})
        except (OSError, ValueError, SyntaxError, RecursionError) as error:  # it stays whole
            answers.append({"error": str(error)})
    json.dump({"files": answers}, sys.stdout)


if __name__ == "__main__":
    main()
