"""Puts breakpoints into bytecode (Python 3.10, 3.11): a call to the hook before a line, its condition as plain bytecode where
that is possible. A line without a breakpoint costs what it did before."""

import sys

from . import bytecode, conditions, opcodes
from .bytecode import Instruction

HOOK = "__lockstep_hook__"
_NEW = sys.version_info >= (3, 11)


def counter_name(index):
    return f"__lockstep_n{index}__"


class Placed:
    """One breakpoint in one code object."""

    __slots__ = ("index", "line", "entry", "condition")

    def __init__(self, index, line, entry=False, condition=None):
        self.index = index
        self.line = line
        self.entry = entry  # only before the function's first line, once a call
        self.condition = condition


class _Writer:
    def __init__(self, code, effect):
        self.code = code
        self.instructions = bytecode.decode(code)
        self.names = list(code.co_names)
        self.consts = list(code.co_consts)
        self.extra_stack = 0
        self.tail = []  # handlers of conditions that raise, behind everything else
        self._effect = effect
        self._depths = None

    def name(self, name):
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def const(self, value):
        self.consts.append(value)
        return len(self.consts) - 1

    def depth(self, instruction):
        if self._depths is None:
            self._depths = bytecode.stack_depths(self.instructions, self._effect)
        return self._depths.get(id(instruction))

    def call_hook(self, value, position, handler):
        name, const = self.name(HOOK), self.const(value)
        self.extra_stack = max(self.extra_stack, 6)
        if _NEW:
            parts = [
                (opcodes.LOAD_GLOBAL, name << 1 | 1),
                (opcodes.LOAD_CONST, const),
                (opcodes.PRECALL, 1),
                (opcodes.CALL, 1),
            ]
        else:
            parts = [(opcodes.LOAD_GLOBAL, name), (opcodes.LOAD_CONST, const), (opcodes.CALL_FUNCTION, 1)]
        parts.append((opcodes.POP_TOP, 0))
        return [Instruction(op, arg, None, position, handler) for op, arg in parts]

    def count(self, index, after, position, handler):
        """Counts by walking an endless iterator, which needs no call."""
        name = self.name(counter_name(index))
        self.extra_stack = max(self.extra_stack, 4)
        return [
            Instruction(opcodes.LOAD_GLOBAL, name << 1 if _NEW else name, None, position, handler),
            Instruction(opcodes.FOR_ITER, 0, after, position, handler),
            Instruction(opcodes.POP_TOP, 0, None, position, handler),
            Instruction(opcodes.POP_TOP, 0, None, position, handler),
        ]

    def block(self, placed, before, error_base):
        """The instructions of one breakpoint before the instruction `before`."""
        position = (placed.line, placed.line, None, None)
        handler = before.handler
        if placed.condition is None:
            return self.call_hook(placed.index, position, handler)
        depth = self.depth(before) if _NEW else 0
        body = None if depth is None else conditions.inlined(placed.condition, self, position)
        if body is None:
            return self.call_hook(placed.index, position, handler)  # Python evaluates the condition
        done = Instruction(opcodes.NOP, 0, None, position, handler)
        handling = self.call_hook(-error_base - placed.index, position, handler)
        if _NEW:
            handling.insert(0, Instruction(opcodes.PUSH_EXC_INFO, 0, None, position, handler))
            handling += [Instruction(op, 0, None, position, handler) for op in (opcodes.POP_TOP, opcodes.POP_EXCEPT)]
            handling.append(Instruction(opcodes.JUMP_BACKWARD, 0, done, position, handler))
            for instruction in body:
                instruction.handler = (handling[0], depth, 0)
            self.extra_stack = max(self.extra_stack, 8)
        else:
            handling += [Instruction(opcodes.POP_TOP, 0, None, position) for _ in range(3)]
            handling.append(Instruction(opcodes.POP_EXCEPT, 0, None, position))
            handling.append(Instruction(opcodes.JUMP_ABSOLUTE, 0, done, position))
            body.insert(0, Instruction(opcodes.SETUP_FINALLY, 0, handling[0], position))
            body.append(Instruction(opcodes.POP_BLOCK, 0, None, position))
            self.extra_stack = max(self.extra_stack, 14)
        self.tail += handling
        test = Instruction(opcodes.POP_JUMP_IF_FALSE, 0, done, position, handler)
        counted = Instruction(opcodes.NOP, 0, None, position, handler)
        return [
            *self.count(placed.index, counted, position, handler),
            counted,
            *body,
            test,
            *self.call_hook(~placed.index, position, handler),
            done,
        ]


def _prologue_end(instructions):
    """Index of the first instruction after the function's entry."""
    for index, instruction in enumerate(instructions):
        if instruction.op not in opcodes.PROLOGUE or (
            instruction.op == opcodes.POP_TOP and not _after_generator(instructions, index)
        ):
            return index
    return len(instructions)


def _after_generator(instructions, index):
    return _NEW and index > 0 and instructions[index - 1].op == 75  # RETURN_GENERATOR


def places(writer, line, entry):
    """Where a line begins: [(instruction, whether only jumps back reach it)]."""
    instructions = writer.instructions
    begin = _prologue_end(instructions)
    if entry:
        return [(instructions[begin], False)] if begin < len(instructions) else []
    runs, previous = [], None
    for index in range(begin, len(instructions)):
        current = instructions[index].line
        if current is None:
            current = previous
        if current == line and previous != line:
            runs.append(index)
        previous = current
    if not runs:
        return []
    if len(runs) > 1:
        # Further ranges of the line in the middle of an expression, or at the end of a with block, are no new arrival at it.
        depths = [writer.depth(instructions[index]) for index in runs]
        known = [depth for depth in depths if depth is not None]
        lowest = min(known) if known else 0
        runs = [index for index, depth in zip(runs, depths) if depth == lowest] or runs
    found = [(instructions[index], False) for index in runs]
    starts = {id(instruction) for instruction, _ in found}
    position = {id(instruction): index for index, instruction in enumerate(instructions)}
    for index, instruction in enumerate(instructions):
        target = instruction.target
        if (
            target is None
            or id(target) in starts
            or target.line != line
            or position[id(target)] > index
            or position[id(target)] < begin
        ):
            continue
        starts.add(id(target))
        found.append((target, True))
    return found


def rewritten(code, points, effect, error_base):
    """The code object with breakpoints, and for each point whether it was placed."""
    writer = _Writer(code, effect)
    inserted = {}  # id of instruction → [(blocks, only jumps back)]
    placed_any = {}
    for point in points:
        found = places(writer, point.line, point.entry)
        placed_any[point.index] = bool(found)
        for instruction, back_only in found:
            inserted.setdefault((id(instruction), back_only), []).append(point)
    out = []
    redirect_all, redirect_back = {}, {}
    order = {id(instruction): index for index, instruction in enumerate(writer.instructions)}
    for instruction in writer.instructions:
        for back_only in (True, False):
            blocks = []
            for point in inserted.get((id(instruction), back_only), ()):
                blocks += writer.block(point, instruction, error_base)
            if not blocks:
                continue
            if back_only:
                out.append(Instruction(opcodes.JUMP_FORWARD, 0, instruction, blocks[0].position, instruction.handler))
                redirect_back[id(instruction)] = blocks[0]
            else:
                redirect_all[id(instruction)] = blocks[0]
            out += blocks
        out.append(instruction)
    for instruction in writer.instructions:
        target = instruction.target
        if target is None:
            continue
        if id(target) in redirect_all:
            instruction.target = redirect_all[id(target)]
        elif id(target) in redirect_back and order[id(target)] <= order[id(instruction)]:
            instruction.target = redirect_back[id(target)]
    out += writer.tail
    raw = bytecode.encode(out)
    changes = {
        "co_code": raw,
        "co_names": tuple(writer.names),
        "co_consts": tuple(writer.consts),
        "co_stacksize": code.co_stacksize + writer.extra_stack + 2,
        "co_linetable": bytecode.line_table(out, code.co_firstlineno),
    }
    if _NEW:
        changes["co_exceptiontable"] = bytecode.exception_table(out)
    return code.replace(**changes), placed_any
