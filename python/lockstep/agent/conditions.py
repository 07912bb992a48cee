"""Conditions of breakpoints: compiled once, run in the function's own scope."""

import sys

from . import opcodes

_NEW = sys.version_info >= (3, 11)
_code_type = type((lambda: None).__code__)
_function_type = type(lambda: None)
_OPTIMIZED = 1
_GENERATORS = 0x20 | 0x80 | 0x200


def check(expression):
    """Raises SyntaxError for what is no expression."""
    compile(_wrapped(expression), "<condition>", "eval", dont_inherit=True)


def _wrapped(expression):
    return "(" + expression.strip() + "\n)"


def _inner(code, name):
    return next(constant for constant in code.co_consts if type(constant) is _code_type and constant.co_name == name)


def local_names(code):
    return [name for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars) if name.isidentifier()]


def as_function(expression, code):
    """(code object of a function of the local variables that the expression uses, those names)."""
    names = list(dict.fromkeys(local_names(code)))
    source = f"def __outer__({', '.join(names)}):\n def __condition__():\n  return {_wrapped(expression)}\n return __condition__\n"
    inner = _inner(_inner(compile(source, "<condition>", "exec", dont_inherit=True), "__outer__"), "__condition__")
    if inner.co_flags & _GENERATORS:
        raise SyntaxError("await and yield have no place in a condition")
    used = [name for name in names if name in inner.co_freevars]
    source = f"def __condition__({', '.join(used)}):\n return {_wrapped(expression)}\n"
    return _inner(compile(source, "<condition>", "exec", dont_inherit=True), "__condition__"), used


def callable_for(expression, code, namespace):
    """(function, names) for monitored code; None where a function would not mean the same."""
    if not code.co_flags & _OPTIMIZED and (code.co_name != "<module>" or ":=" in expression):
        return None
    inner, used = as_function(expression, code)
    return _function_type(inner, namespace), tuple(used)


def inlined(expression, writer, position):
    """Instructions that leave the condition's value on the stack; None when Python must evaluate it."""
    code = writer.code
    try:
        if code.co_flags & _OPTIMIZED:
            inner, used = as_function(expression, code)
        else:
            inner, used = compile(_wrapped(expression), "<condition>", "eval", dont_inherit=True), []
        if not code.co_flags & _OPTIMIZED and inner.co_cellvars:
            return None
        if code.co_flags & _OPTIMIZED and not _is_simple(inner, used):
            return _call(inner, used, writer, position)
        return _body(inner, writer, position)
    except (SyntaxError, StopIteration, KeyError, ValueError, RecursionError):
        return None


def _is_simple(inner, used):
    """No variables of its own (:=), no functions inside (lambda, comprehensions)."""
    return (
        not inner.co_cellvars
        and not inner.co_freevars
        and len(inner.co_varnames) == len(used)
        and not any(type(constant) is _code_type for constant in inner.co_consts)
        and not (_NEW and inner.co_exceptiontable)
    )


def _load(name, writer, position):
    from .bytecode import Instruction

    code = writer.code
    if _NEW:
        cells = (*code.co_cellvars, *code.co_freevars)
        if name in cells:
            plus = [
                *code.co_varnames,
                *(cell for cell in code.co_cellvars if cell not in code.co_varnames),
                *code.co_freevars,
            ]
            return Instruction(opcodes.LOAD_DEREF, plus.index(name), None, position)
    else:
        cells = (*code.co_cellvars, *code.co_freevars)
        if name in cells:
            return Instruction(opcodes.LOAD_DEREF, cells.index(name), None, position)
    return Instruction(opcodes.LOAD_FAST, code.co_varnames.index(name), None, position)


def _call(inner, used, writer, position):
    """Makes the function where it is used, so that it has the right globals, and calls it."""
    from .bytecode import Instruction

    parts = []
    if _NEW:
        parts.append(Instruction(opcodes.PUSH_NULL, 0, None, position))
    parts.append(Instruction(opcodes.LOAD_CONST, writer.const(inner), None, position))
    if not _NEW:
        parts.append(Instruction(opcodes.LOAD_CONST, writer.const("__condition__"), None, position))
    parts.append(Instruction(opcodes.MAKE_FUNCTION, 0, None, position))
    parts += [_load(name, writer, position) for name in used]
    if _NEW:
        parts.append(Instruction(opcodes.PRECALL, len(used), None, position))
        parts.append(Instruction(opcodes.CALL, len(used), None, position))
    else:
        parts.append(Instruction(opcodes.CALL_FUNCTION, len(used), None, position))
    writer.extra_stack = max(writer.extra_stack, 8 + len(used))
    return parts


def _body(inner, writer, position):
    from . import bytecode
    from .bytecode import Instruction

    instructions = bytecode.decode(inner)
    end = Instruction(opcodes.NOP, 0, None, position)
    out, replaced = [], {}
    for index, instruction in enumerate(instructions):
        op, arg = instruction.op, instruction.arg
        new = instruction
        if _NEW and op == opcodes.RESUME:
            new = Instruction(opcodes.NOP)
        elif op == opcodes.RETURN_VALUE:
            new = (
                Instruction(opcodes.JUMP_FORWARD, 0, end) if index + 1 < len(instructions) else Instruction(opcodes.NOP)
            )
        elif op == opcodes.LOAD_FAST:
            new = _load(inner.co_varnames[arg], writer, position)
        elif op == opcodes.LOAD_CONST:
            new = Instruction(op, writer.const(inner.co_consts[arg]))
        elif _NEW and op == 172:  # KW_NAMES
            new = Instruction(op, writer.const(inner.co_consts[arg]))
        elif op in opcodes.NAMES:
            shift = 1 if _NEW and op == opcodes.LOAD_GLOBAL else 0
            name = writer.name(inner.co_names[arg >> shift])
            new = Instruction(op, name << shift | (arg & 1 if shift else 0))
        if new is not instruction:
            replaced[id(instruction)] = new
            if new.target is None:
                new.target = instruction.target if new.op == op else None
        new.position = position
        out.append(new)
    for instruction in out:
        if instruction.target is not None:
            instruction.target = replaced.get(id(instruction.target), instruction.target)
    out.append(end)
    out = _without_nops(out, end)
    writer.extra_stack = max(writer.extra_stack, 8 + inner.co_stacksize)
    return out


def _without_nops(instructions, end):
    """NOPs that nothing jumps to cost a dispatch each."""
    targets = {id(instruction.target) for instruction in instructions if instruction.target is not None}
    return [one for one in instructions if one.op != opcodes.NOP or id(one) in targets]
