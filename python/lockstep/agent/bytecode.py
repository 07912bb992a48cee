"""Code objects of Python 3.10 and 3.11 as lists of instructions, and back."""

import sys

from . import opcodes
from .opcodes import ABSOLUTE, CACHES, EXTENDED_ARG, JUMPS

HAS_EXCEPTION_TABLE = sys.version_info >= (3, 11)


class Instruction:
    __slots__ = ("op", "arg", "target", "position", "handler", "offset", "size")

    def __init__(self, op, arg=0, target=None, position=None, handler=None):
        self.op = op
        self.arg = arg
        self.target = target  # the instruction that a jump goes to
        self.position = position  # line, end line, column, end column
        self.handler = handler  # (instruction, stack depth, whether lasti is pushed): where exceptions go, 3.11
        self.offset = 0
        self.size = 0

    @property
    def line(self):
        return self.position[0] if self.position is not None else None


def decode(code):
    raw = code.co_code
    positions = _positions(code)
    instructions, at_offset = [], {}
    at, extended, begin = 0, 0, 0
    while at < len(raw):
        op, arg = raw[at], raw[at + 1] | extended
        if op == EXTENDED_ARG:
            extended = arg << 8
            at += 2
            continue
        extended = 0
        instruction = Instruction(op, arg, position=positions[begin // 2])
        instruction.offset = begin
        following = at + 2 + 2 * CACHES.get(op, 0)
        instruction.size = following - begin
        instructions.append(instruction)
        for offset in range(begin, following, 2):
            at_offset.setdefault(offset, instruction)
        at = begin = following
    for instruction in instructions:
        direction = JUMPS.get(instruction.op)
        if direction is None:
            continue
        target = 2 * instruction.arg
        if direction != 0:
            target = instruction.offset + instruction.size + direction * target
        instruction.target = at_offset[target]
    if HAS_EXCEPTION_TABLE:
        by_unit = {instruction.offset: instruction for instruction in instructions}
        for begin, end, target, depth, lasti in parse_exception_table(code.co_exceptiontable):
            for instruction in instructions:
                if begin <= instruction.offset < end:
                    instruction.handler = (by_unit[target], depth, lasti)
    return instructions


def _positions(code):
    if HAS_EXCEPTION_TABLE:
        return list(code.co_positions())
    found = [None] * (len(code.co_code) // 2)
    for begin, end, line in code.co_lines():
        for unit in range(begin // 2, end // 2):
            found[unit] = (line, line, None, None)
    return found


def parse_exception_table(table):
    """(begin, end, target, depth, lasti), offsets in bytes."""
    numbers, at = [], 0
    while at < len(table):
        byte = table[at]
        value = byte & 63
        while byte & 64:
            at += 1
            byte = table[at]
            value = value << 6 | byte & 63
        at += 1
        numbers.append(value)
    return [
        (2 * start, 2 * (start + length), 2 * target, last >> 1, last & 1)
        for start, length, target, last in zip(numbers[::4], numbers[1::4], numbers[2::4], numbers[3::4])
    ]


def _units(arg):
    return 1 if arg < 1 << 8 else 2 if arg < 1 << 16 else 3 if arg < 1 << 24 else 4


def encode(instructions):
    """co_code; sets each instruction's offset and size."""
    sizes = [2 * (_units(0 if i.target is not None else i.arg) + CACHES.get(i.op, 0)) for i in instructions]
    changed = True
    while changed:  # a jump that needs EXTENDED_ARG moves what is behind it
        changed = False
        offset = 0
        for instruction, size in zip(instructions, sizes):
            instruction.offset, instruction.size = offset, size
            offset += size
        for index, instruction in enumerate(instructions):
            if instruction.target is None:
                continue
            target = instruction.target.offset
            if instruction.op in ABSOLUTE:
                arg = target // 2
            else:
                arg = (target - instruction.offset - instruction.size) * JUMPS[instruction.op] // 2
                if arg < 0:
                    raise ValueError("a jump changed its direction")
            instruction.arg = arg
            size = 2 * (_units(arg) + CACHES.get(instruction.op, 0))
            if size > sizes[index]:
                sizes[index] = size
                changed = True
    out = bytearray()
    for instruction in instructions:
        caches = CACHES.get(instruction.op, 0)
        prefixes = instruction.size // 2 - caches - 1
        for shift in range(8 * prefixes, 0, -8):
            out += bytes((EXTENDED_ARG, instruction.arg >> shift & 255))
        out += bytes((instruction.op, instruction.arg & 255))
        out += bytes(2 * caches)
    return bytes(out)


def line_table(instructions, first_line):
    return _locations(instructions, first_line) if HAS_EXCEPTION_TABLE else _line_pairs(instructions, first_line)


def _runs(instructions):
    runs = []
    for instruction in instructions:
        if runs and runs[-1][0] == instruction.position:
            runs[-1][1] += instruction.size
        else:
            runs.append([instruction.position, instruction.size])
    return runs


def _line_pairs(instructions, current):
    out = bytearray()
    for position, size in _runs(instructions):
        line = position[0] if position is not None else None
        if line is None:
            while size > 0:
                out += bytes((min(size, 254), 128))
                size -= 254
            continue
        delta = line - current
        while delta > 127:
            out += bytes((0, 127))
            delta -= 127
        while delta < -127:
            out += bytes((0, 129))
            delta += 127
        out += bytes((min(size, 254), delta & 255))
        size -= 254
        while size > 0:
            out += bytes((min(size, 254), 0))
            size -= 254
        current = line
    return bytes(out)


def _varint(value):
    out = bytearray()
    while value >= 64:
        out.append(value & 63 | 64)
        value >>= 6
    out.append(value)
    return out


def _signed(value):
    return _varint(-value << 1 | 1 if value < 0 else value << 1)


def _locations(instructions, current):
    out = bytearray()
    for position, size in _runs(instructions):
        units = size // 2
        while units > 0:
            some = min(units, 8)
            units -= some
            line, end_line, column, end_column = position if position is not None else (None,) * 4
            if line is None:
                out.append(0x80 | 15 << 3 | some - 1)
                continue
            if column is None or end_column is None or end_line is None or end_line < line:
                out.append(0x80 | 13 << 3 | some - 1)
                out += _signed(line - current)
            else:
                out.append(0x80 | 14 << 3 | some - 1)
                out += (
                    _signed(line - current) + _varint(end_line - line) + _varint(column + 1) + _varint(end_column + 1)
                )
            current = line
    return bytes(out)


def exception_table(instructions):
    out = bytearray()
    runs = []
    for instruction in instructions:
        if runs and runs[-1][0] == instruction.handler:
            runs[-1][2] = instruction.offset + instruction.size
        else:
            runs.append([instruction.handler, instruction.offset, instruction.offset + instruction.size])
    for handler, begin, end in runs:
        if handler is None:
            continue
        target, depth, lasti = handler
        entry = bytearray()
        for value in (begin // 2, (end - begin) // 2, target.offset // 2, depth << 1 | lasti):
            groups = [value & 63]
            while value >= 64:
                value >>= 6
                groups.append(value & 63 | 64)
            entry += bytes(reversed(groups))
        entry[0] |= 128
        out += entry
    return bytes(out)


def stack_depths(instructions, effect):
    """Stack depth before each instruction that can be reached."""
    following = {id(one): after for one, after in zip(instructions, instructions[1:])}
    depths, work = {}, [(instructions[0], 0)]
    while work:
        instruction, depth = work.pop()
        while instruction is not None and id(instruction) not in depths:
            depths[id(instruction)] = depth
            if instruction.handler is not None:
                target, below, lasti = instruction.handler
                work.append((target, below + lasti + 1))
            arg = instruction.arg
            if instruction.target is not None:
                work.append((instruction.target, depth + effect(instruction.op, arg, 1)))
            if instruction.op in opcodes.NO_FALL_THROUGH:
                break
            # The compiler adds RETURN_GENERATOR after counting: its caller's value takes the place that POP_TOP frees.
            depth += (
                1
                if instruction.op == opcodes.RETURN_GENERATOR
                else effect(instruction.op, arg if instruction.op >= 90 else 0, 0)
            )
            instruction = following.get(id(instruction))
    return depths
