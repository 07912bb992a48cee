"""Breakpoints as they were asked for, and where they are in the program's files."""

import os
import sys

from . import sources
from .arguments import Refused

# What is kept of a request as it was given, and described as such.
_GIVEN = (
    *("file", "line", "function", "text", "module", "checkpoint"),
    *("when", "context", "condition", "log", "capture"),
)


class Breakpoint:
    def __init__(self, number, kind, where):
        self.id = number
        self.kind = kind  # line, function, text, data, checkpoint
        self.where = where
        self.file = None  # as asked for, absolute where it was found
        self.path = None  # canonical
        self.line = self.requested_line = None
        self.function = self.text = None
        self.module = self.checkpoint = self.when = self.context = None
        self.nan = False
        self.condition = self.log = self.capture = None
        self.condition_code = self.log_code = self.capture_code = self.when_code = None
        self.capture_name = None
        self.hits_wanted = self.hit_when = None
        self.hit_test = None  # of hit_when: count → whether it stops
        self.once = False
        self.enabled = True
        self.state = "pending"
        self.message = ""
        self.hit_count = 0
        self.reached_before = 0  # by points that are gone
        self.errors = 0
        self.last_error = None
        self.error_stopped = False
        self.places = []
        self.points = []  # Point
        self.in_own_files = False  # a statement: found in a file that is no library's
        self.library_files = {}  # a statement: file of a library → whether its source has the words
        self.how = None

    def reached(self, engine):
        return self.reached_before + sum(engine.reached(point.index) for point in self.points)

    def describe(self, engine):
        reached = self.reached(engine)
        about = {
            "id": self.id,
            "kind": self.kind,
            "where": self.where,
            "enabled": self.enabled,
            "state": self.state,
            "message": self.message,
            "hit_count": self.hit_count,
            "reached": max(reached, self.hit_count),
            "false_count": max(0, reached - self.hit_count - self.errors) if self.condition else 0,
            "errors": self.errors,
            "last_error": self.last_error,
            "once": self.once,
            "places": self.places[:20],
            "how": self.how,
        }
        for name in (*_GIVEN, "requested_line", "hits_wanted", "hit_when"):
            value = getattr(self, name)
            if value is not None:
                about[name] = value
        if self.nan:
            about["nan"] = True
        return about


class Point:
    """One breakpoint in one code object; `index` is what the hook is called with."""

    __slots__ = ("index", "breakpoint", "line", "entry", "code", "offset")

    def __init__(self, index, breakpoint, line, entry, code):
        self.index = index
        self.breakpoint = breakpoint
        self.line = line
        self.entry = entry
        self.code = code


_FIELDS = {
    "where": str,
    "file": str,
    "line": int,
    "function": str,
    "text": str,
    "module": str,
    "nan": bool,
    "when": str,
    "checkpoint": str,
    "context": dict,
    "condition": str,
    "hits": int,
    "hit_when": str,
    "once": bool,
    "log": str,
    "capture": str,
    "enabled": bool,
}


def parse(number, args):
    """A Breakpoint from the args of `break`."""
    from . import conditions

    for name, kind in _FIELDS.items():
        value = args.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise Refused("bad_request", f"{name} is a {type(value).__name__}", f"expected {kind.__name__}")
        if isinstance(value, str) and len(value) > 10_000:
            raise Refused("too_large", f"{name} has {len(value)} characters", "expected at most 10,000")
    given = {name: args.get(name) for name in _FIELDS if args.get(name) is not None}
    where = given.pop("where", None)
    if where is not None and not any(
        name in given for name in ("file", "function", "text", "module", "checkpoint", "line")
    ):
        given.update(_understand(where))
    where = where or _where_text(given)
    if "checkpoint" in given:
        kind = "checkpoint"
    elif "module" in given or (("nan" in given or "when" in given) and "line" not in given):
        kind = "data"
        given.setdefault("module", "*")
        if not given.get("nan") and not given.get("when"):
            raise Refused(
                "bad_request", "a breakpoint on a module needs nan or when", '"nan": true or "when": "absmax > 1e4"'
            )
    elif "line" in given:
        kind = "line"
        if "file" not in given:
            raise Refused("bad_request", "line without file", "both, or FILE:LINE")
    elif "function" in given:
        kind = "function"
    elif "text" in given:
        kind = "text"
    else:
        raise Refused(
            "bad_request", "a breakpoint needs where, file and line, function, text, module or checkpoint", "FILE:LINE"
        )
    breakpoint = Breakpoint(number, kind, where)
    for name in _GIVEN:
        setattr(breakpoint, name, given.get(name))
    breakpoint.requested_line = given.get("line")
    breakpoint.nan = bool(given.get("nan"))
    breakpoint.once = bool(given.get("once"))
    breakpoint.enabled = given.get("enabled", True)
    breakpoint.hits_wanted = given.get("hits")
    if breakpoint.hits_wanted is not None and breakpoint.hits_wanted < 1:
        raise Refused("bad_request", f"hits is {breakpoint.hits_wanted}", "expected 1 or more")
    if given.get("hit_when") is not None:
        breakpoint.hit_when, breakpoint.hit_test = given["hit_when"], _hit_test(given["hit_when"])
    if kind == "line" and given["line"] < 1:
        raise Refused("bad_request", f"line is {given['line']}", "expected 1 or more")
    _compile_expressions(breakpoint, conditions)
    return breakpoint


def _hit_test(text):
    """count → whether it stops, from a sign and a number: "3" and "== 3" the third time, ">= 3" from then on, "% 3" every third time."""
    sign = text.strip().rstrip("0123456789").strip() or "=="
    number = text.strip()[len(text.strip().rstrip("0123456789")) :]
    tests = {
        "==": lambda count, n: count == n,
        "=": lambda count, n: count == n,
        ">": lambda count, n: count > n,
        ">=": lambda count, n: count >= n,
        "<": lambda count, n: count < n,
        "<=": lambda count, n: count <= n,
        "%": lambda count, n: count % n == 0,
    }
    if sign not in tests or not number or len(number) > 15 or (sign == "%" and int(number) == 0):
        raise Refused("bad_request", f"hit_when is {text[:100]!r}", "expected a number after ==, >, >=, <, <= or %")
    test, wanted = tests[sign], int(number)
    return lambda count: test(count, wanted)


def _compile_expressions(breakpoint, conditions):
    for name in ("condition", "log", "when"):
        text = getattr(breakpoint, name)
        if text is None:
            continue
        try:
            setattr(
                breakpoint, name + "_code", compile("(" + text.strip() + "\n)", f"<{name}>", "eval", dont_inherit=True)
            )
        except (SyntaxError, ValueError) as error:
            raise Refused("bad_expression", f"{name} {text!r}: {error}", "expected one Python expression") from None
    if breakpoint.capture is not None:
        name, equals, expression = breakpoint.capture.partition("=")
        if not equals or not name.strip():
            name, expression = breakpoint.capture, breakpoint.capture
        breakpoint.capture_name = name.strip()
        try:
            breakpoint.capture_code = compile("(" + expression.strip() + "\n)", "<capture>", "eval", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise Refused("bad_expression", f"capture {expression!r}: {error}", "expected NAME=EXPRESSION") from None


def _understand(where):
    """FILE:LINE, FUNCTION, FILE:statement text or statement text."""
    where = where.strip()
    head, colon, tail = where.rpartition(":")
    if colon and tail.strip().isdigit() and head:
        return {"file": head, "line": int(tail)}
    if all(part.isidentifier() or part == "<locals>" for part in where.split(".")) and where:
        return {"function": where}
    file, colon, text = where.partition(":")
    if colon and file.endswith(".py") and text.strip():
        if text.strip().replace(".", "").isidentifier():
            return {"file": file, "function": text.strip()}
        return {"file": file, "text": text.strip()}
    return {"text": where}


def _where_text(given):
    if "checkpoint" in given:
        return f"checkpoint {given['checkpoint']}"
    if "line" in given:
        return f"{given.get('file')}:{given['line']}"
    return given.get("function") or given.get("text") or given.get("module") or "?"


def find_file(name):
    """(absolute path or None, whether it was found). Relative to the working directory, on sys.path, or the end of a loaded file's path."""
    name = os.path.expanduser(name)
    for base in (sources._start_folder, os.getcwd()):
        path = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(path):
            return path, True
    if os.path.isabs(name):
        return name, False
    ending = "/" + name.lstrip("./")
    loaded = [file for file in sources.loaded_files() if file.endswith(ending)]
    if loaded:
        return min(loaded, key=len), True
    for folder in sys.path:
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path):
            return path, True
    return name, False


def matches_file(breakpoint, filename):
    """Whether code of this file may hold the breakpoint."""
    if breakpoint.path is not None:
        return sources.is_same(filename, breakpoint.path)
    if breakpoint.file is not None:
        return filename.endswith("/" + breakpoint.file.lstrip("./")) or filename == breakpoint.file
    return True


def resolve_line(breakpoint):
    """Settles file and line against the source: moves to the next line with code."""
    path, found = find_file(breakpoint.file)
    if found:
        breakpoint.file = sources.absolute(path)
        breakpoint.path = sources.canonical(path)
    if not found:
        breakpoint.message = f"no file {breakpoint.file} yet: the breakpoint waits for it"
        return
    executable = sources.executable_lines(breakpoint.file)
    if not executable:
        if sources.tree_of(breakpoint.file) is None:
            breakpoint.message = "the file is no Python that can be compiled here; the line is taken as it is"
        else:
            breakpoint.state, breakpoint.message = "invalid", "the file holds no code"
        return
    line = breakpoint.requested_line
    if line not in executable:
        later = [candidate for candidate in executable if candidate > line]
        if not later:
            breakpoint.state = "invalid"
            breakpoint.message = (
                f"line {line} holds no code and none follows; the last line with code is {max(executable)}"
            )
            return
        breakpoint.line = min(later)
        breakpoint.message = f"line {line} holds no code: moved to {breakpoint.line}"
    else:
        breakpoint.line = line
        text = sources.line_text(breakpoint.file, line).lstrip()
        if text.startswith(("def ", "async def ", "class ")):
            breakpoint.message = (
                "this line runs when the function or class is defined; break on its name to stop in calls"
            )


def function_matches(breakpoint, code, module):
    """Whether `function` names this code: qualified name or its end, with or without module."""
    wanted = breakpoint.function
    name = sources.qualified_name(code)
    if code.co_name in ("<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"):
        return False
    plain = name.replace("<locals>.", "")
    for candidate in (name, plain):
        if candidate == wanted or candidate.endswith("." + wanted):
            return True
        if module and (f"{module}.{candidate}" == wanted or f"{module}.{candidate}".endswith("." + wanted)):
            return True
    if (
        sys.version_info < (3, 11) and "." in wanted
    ):  # no co_qualname: the last name, and the class where it can be told
        return code.co_name == wanted.rpartition(".")[2] and _holds(code, wanted)
    return False


def _holds(code, wanted):
    tree = sources.tree_of(code.co_filename)
    if tree is None:
        return False

    def visit(node, path):
        for constant in node.co_consts:
            if type(constant) is type(code):
                inner = [*path, constant.co_name]
                if constant.co_firstlineno == code.co_firstlineno and constant.co_name == code.co_name:
                    full = ".".join(inner)
                    module = os.path.splitext(os.path.basename(code.co_filename))[0]
                    if full == wanted or full.endswith("." + wanted) or f"{module}.{full}".endswith(wanted):
                        return True
                if visit(constant, inner):
                    return True
        return False

    return visit(tree, [])


def searches(breakpoint, filename):
    """Whether a statement that was given without a file is looked for in this one: in the program's own files, and in libraries as long
    as none of its own has it. Not in the standard library, which has every short statement."""
    if filename.startswith("<") or sources.is_machinery(filename):
        return False
    if not sources.is_library(filename):
        return True
    if breakpoint.in_own_files or sources.is_standard(filename):
        return False
    known = breakpoint.library_files.get(filename)
    if (
        known is None
    ):  # thousands of files are imported, and each of their functions asks: one look at the bytes ends most questions
        word = max(breakpoint.text.split(), key=len, default="")
        known = breakpoint.library_files[filename] = bool(word) and word.encode() in (sources.read(filename) or b"")
    return known


def text_lines(breakpoint, filename):
    """Line numbers of statements that begin with the breakpoint's text."""
    wanted = " ".join(breakpoint.text.split())
    found, starts = [], []
    for number, line in enumerate(sources.lines_of(filename), 1):
        plain = " ".join(line.split())
        if plain == wanted:
            found.append(number)
        elif wanted and plain.startswith(wanted):
            starts.append(number)
    executable = sources.executable_lines(filename)
    return [line for line in (found or starts) if line in executable]


def first_line(code):
    """The line of the function's first instruction after its entry."""
    from . import opcodes

    for begin, end, line in code.co_lines():
        if line is None or line <= 0:
            continue
        if opcodes.PROLOGUE and all(op in opcodes.PROLOGUE for op in opcodes.operations(code.co_code, begin, end)):
            continue
        return line
    return code.co_firstlineno


def is_first_instruction(frame, line):
    """Whether the frame is at the first arrival at its first line, not at a later turn of a loop there."""
    from . import opcodes

    code = frame.f_code
    for begin, end, number in code.co_lines():
        if number == line and not (
            opcodes.PROLOGUE and all(op in opcodes.PROLOGUE for op in opcodes.operations(code.co_code, begin, end))
        ):
            return begin <= frame.f_lasti < end and frame.f_lasti <= begin + 2 * 4
    return True
