"""Expressions and statements in the scope of a stopped frame."""

import sys

from . import native

_ONLY_AST = 0x400
_PROXIES = sys.version_info >= (3, 13)  # f_locals writes through


class _Nested(dict):
    """Globals for the functions and comprehensions inside an expression, which would not see the frame's locals."""

    def __init__(self, scope):
        super().__init__()
        self._scope = scope

    def __missing__(self, name):
        return self._scope[name]


class _Scope(dict):
    """Locals of the evaluated code: the frame's variables, then its globals. A dict only because exec asks for mappings."""

    def __init__(self, variables, globals_, extra=None):
        super().__init__()
        self.variables = variables
        self.globals = globals_
        self.extra = extra or {}
        self.assigned = []

    def __getitem__(self, name):
        try:
            return self.variables[name]
        except KeyError:
            return self.globals[name] if name in self.globals else self.extra[name]

    def __setitem__(self, name, value):
        self.variables[name] = value
        if name not in self.assigned:
            self.assigned.append(name)

    def __delitem__(self, name):
        del self.variables[name]

    def __contains__(self, name):
        return name in self.variables or name in self.globals

    def keys(self):
        return self.variables.keys()

    def __iter__(self):
        return iter(self.variables)


def split(text, filename="<debugger>"):
    """(code of all statements but a last expression or None, code of that expression or None)."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    source = "\n".join(line[indent:] for line in lines)
    tree = compile(source, filename, "exec", _ONLY_AST, dont_inherit=True)
    last = tree.body[-1] if tree.body else None
    expression = None
    if last is not None and type(last).__name__ == "Expr":
        tree.body.pop()
        holder = compile("0", filename, "eval", _ONLY_AST, dont_inherit=True)
        holder.body = last.value
        expression = compile(holder, filename, "eval", dont_inherit=True)
    statements = compile(tree, filename, "exec", dont_inherit=True) if tree.body else None
    return statements, expression


def names_of(stop):
    """Names that an evaluation at this stop may use beside the program's own: what was kept of earlier ones, for whoever looks deeper into it."""
    return {**(stop.extra or {}), "_kept": stop.kept}


def run(text, frame, extra=None):
    """(value, whether there is one, names assigned). Raises what the code raises. extra: names that come last."""
    statements, expression = split(text)
    globals_ = frame.f_globals
    builtins = globals_.get("__builtins__")
    variables = frame.f_locals
    if variables is globals_ and not extra:
        before = set(globals_) if statements is not None else set()
        if statements is not None:
            exec(statements, globals_)
        value = eval(expression, globals_) if expression is not None else None
        assigned = [name for name in _stored(statements) if name in globals_] if statements is not None else []
        return (
            value,
            expression is not None,
            assigned or sorted(set(globals_) - before if statements is not None else ()),
        )
    scope = _Scope(variables, globals_, extra)
    nested = _Nested(scope)
    dict.__setitem__(nested, "__builtins__", builtins if builtins is not None else sys.modules["builtins"])
    dict.__setitem__(nested, "__name__", globals_.get("__name__"))
    try:
        if statements is not None:
            exec(statements, nested, scope)
        value = eval(expression, nested, scope) if expression is not None else None
    finally:
        for name, item in list(nested.items()):  # `global x; x = 1`
            if name not in ("__builtins__", "__name__"):
                globals_[name] = item
        if (
            scope.assigned
            and not _PROXIES
            and variables is not globals_
            and native.module is not None
            and type(frame).__name__ == "frame"
        ):
            native.module.locals_to_fast(frame)
    return value, expression is not None, list(scope.assigned)


def _stored(code):
    """Names that module-level statements assign to, as far as the code object tells."""
    return [name for name in code.co_names if name.isidentifier()] if code is not None else []


def quick(code, frame):
    """The value of a compiled expression: conditions and log points."""
    variables = frame.f_locals
    globals_ = frame.f_globals
    if variables is globals_:
        return eval(code, globals_)
    scope = _Scope(variables, globals_)
    nested = _Nested(scope)
    builtins = globals_.get("__builtins__")
    dict.__setitem__(nested, "__builtins__", builtins if builtins is not None else sys.modules["builtins"])
    return eval(code, nested, scope)
