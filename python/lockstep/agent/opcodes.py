"""The few opcodes that the debugger knows by number, by Python version: the modules `dis` and `opcode` import too much."""

import sys

_MINOR = sys.version_info[1]
_PROLOGUES = {
    10: (129,),
    11: (151, 149, 135, 75, 1),
    12: (151, 149, 135, 75, 1),
    13: (149, 62, 94, 35, 32),
    14: (128, 60, 97, 34, 31),
}
PROLOGUE = frozenset((*_PROLOGUES.get(_MINOR, ()), *((0,) if _MINOR >= 11 else ())))
YIELDS = {10: (86, 72), 11: (86, 75), 12: (150, 75), 13: (118, 35), 14: (120, 34)}.get(
    _MINOR, ()
)  # a frame that is left here goes on later
CAN_REWRITE = _MINOR in (10, 11) and sys.implementation.name == "cpython"

POP_TOP, NOP, RETURN_VALUE, POP_EXCEPT, FOR_ITER, LOAD_CONST, LOAD_NAME = 1, 9, 83, 89, 93, 100, 101
LOAD_ATTR, LOAD_GLOBAL, JUMP_FORWARD, LOAD_FAST, EXTENDED_ARG, MAKE_FUNCTION = 106, 116, 110, 124, 144, 132
if _MINOR == 11:
    PUSH_NULL, PUSH_EXC_INFO, RESUME, PRECALL, CALL, POP_JUMP_IF_FALSE, LOAD_DEREF, JUMP_BACKWARD = (
        2,
        35,
        151,
        166,
        171,
        114,
        137,
        140,
    )
    JUMPS = {
        93: 1,
        110: 1,
        111: 1,
        112: 1,
        114: 1,
        115: 1,
        123: 1,
        128: 1,
        129: 1,
        134: -1,
        140: -1,
        173: -1,
        174: -1,
        175: -1,
        176: -1,
    }
    ABSOLUTE = frozenset()
    RETURN_GENERATOR = 75
    NAMES = frozenset((101, 106, 116, 160))
    CACHES = {25: 4, 60: 1, 92: 1, 95: 4, 106: 4, 107: 2, 116: 5, 122: 1, 160: 10, 166: 1, 171: 4}
    NO_FALL_THROUGH = frozenset((83, 110, 119, 130, 134, 140))
else:
    RETURN_GENERATOR = -1
    CALL_FUNCTION, POP_JUMP_IF_FALSE, LOAD_DEREF, JUMP_ABSOLUTE, SETUP_FINALLY, POP_BLOCK = 131, 114, 136, 113, 122, 87
    JUMPS = {93: 1, 110: 1, 122: 1, 143: 1, 154: 1, 111: 0, 112: 0, 113: 0, 114: 0, 115: 0, 121: 0}
    ABSOLUTE = frozenset(op for op, direction in JUMPS.items() if direction == 0)
    NAMES = frozenset((101, 106, 116, 160))
    CACHES = {}
    NO_FALL_THROUGH = frozenset((83, 110, 113, 119, 130))


def operations(code, begin, end):
    return [code[at] for at in range(begin, min(end, len(code)), 2)]
