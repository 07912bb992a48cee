"""Element types, by the codes that the capture library and the agent's extension know them under. Imports nothing: the
agent starts before anything else."""

NAMES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
BYTES = (8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1)
CODES = {name: code for code, name in enumerate(NAMES)}
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "bool_": "bool", "float8_e4m3": "float8_e4m3fn"}


def name_of(dtype):
    """A framework's dtype as text, without the framework's name."""
    text = str(dtype)
    return text.rpartition(".")[2] if text.startswith(("torch.", "mlx.core.")) else text


def code_of(name):
    """None for a dtype that has no code."""
    return CODES.get(_ALIASES.get(name, name))
