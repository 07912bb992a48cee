"""Simple conditions as steps that the extension takes without Python code (condition.cpp): `i == 3`, `step > 10 and not done`."""

import sys

_LOCAL, _CONSTANT, _COMPARE, _IS, _CALCULATE, _ATTRIBUTE, _NOT, _AND, _OR, _ITEM = range(10)
_COMPARISONS = {"Lt": 0, "LtE": 1, "Eq": 2, "NotEq": 3, "Gt": 4, "GtE": 5}
_OPERATORS = {"Add": "+", "Sub": "-", "Mult": "*", "Mod": "%", "FloorDiv": "/", "BitAnd": "&"}
_ONLY_AST = 0x400
_OPTIMIZED = 1


def simple_steps(expression, code):
    """The condition as steps that the extension takes without Python code; None when it is not that simple."""
    if not code.co_flags & _OPTIMIZED:
        return None
    steps = []
    tree = compile("(" + expression.strip() + "\n)", "<condition>", "eval", _ONLY_AST, dont_inherit=True)
    return tuple(steps) if _add_steps(tree.body, code, steps) and len(steps) <= 64 else None


def _add_steps(node, code, steps):
    """Appends the steps of an expression; False when there are none for it."""
    kind = type(node).__name__
    if kind == "Constant":
        steps.append((_CONSTANT, 0, node.value))
        return True
    if kind == "Name":
        if node.id not in code.co_varnames or node.id in code.co_cellvars or node.id in code.co_freevars:
            return False
        steps.append((_LOCAL, code.co_varnames.index(node.id), node.id))
        return True
    if kind == "Attribute":
        good = _add_steps(node.value, code, steps)
        steps.append((_ATTRIBUTE, 0, sys.intern(node.attr)))
        return good
    if kind == "UnaryOp" and type(node.op).__name__ == "Not":
        good = _add_steps(node.operand, code, steps)
        steps.append((_NOT, 0, None))
        return good
    if (
        kind == "UnaryOp"
        and type(node.op).__name__ == "USub"
        and type(getattr(node.operand, "value", None)) in (int, float)
    ):
        steps.append((_CONSTANT, 0, -node.operand.value))
        return True
    if kind == "BoolOp":
        return _add_choice(node, code, steps)
    return _add_pair(node, kind, code, steps)


def _add_choice(node, code, steps):
    """and, or: each value but the last ends the whole when it settles it."""
    jump = _AND if type(node.op).__name__ == "And" else _OR
    jumps = []
    for value in node.values[:-1]:
        if not _add_steps(value, code, steps):
            return False
        jumps.append(len(steps))
        steps.append(None)
    good = _add_steps(node.values[-1], code, steps)
    for at in jumps:
        steps[at] = (jump, len(steps), None)
    return good


def _add_pair(node, kind, code, steps):
    if kind == "Compare" and len(node.ops) == 1:
        left, right, name = node.left, node.comparators[0], type(node.ops[0]).__name__
        if name in _COMPARISONS:
            step = (_COMPARE, _COMPARISONS[name], None)
        elif name in ("Is", "IsNot"):
            step = (_IS, int(name == "IsNot"), None)
        else:
            return False
    elif kind == "BinOp" and type(node.op).__name__ in _OPERATORS:
        left, right, step = node.left, node.right, (_CALCULATE, ord(_OPERATORS[type(node.op).__name__]), None)
    elif kind == "Subscript" and type(node.slice).__name__ in ("Constant", "Name", "UnaryOp"):
        left, right, step = node.value, node.slice, (_ITEM, 0, None)
    else:
        return False
    good = _add_steps(left, code, steps) and _add_steps(right, code, steps)
    steps.append(step)
    return good
