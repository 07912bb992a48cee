"""One name for one operation, whatever a framework calls it, and one name for each parameter."""

# kind → parameters in the order in which torch's functions and methods take them. MLX's own order is beside it where it differs.
PARAMETERS = {
    "linear": ("input", "weight", "bias"),
    "matmul": ("input", "other"),
    "addmm": ("bias", "input", "other"),
    "add": ("input", "other"),
    "sub": ("input", "other"),
    "mul": ("input", "other"),
    "div": ("input", "other"),
    "pow": ("input", "exponent"),
    "maximum": ("input", "other"),
    "minimum": ("input", "other"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "group_norm": ("input", "groups", "weight", "bias", "eps"),
    "softmax": ("input", "dim"),
    "gelu": ("input", "approximate"),
    "attention": ("query", "key", "value", "mask", "dropout", "causal", "scale"),
    "transpose": ("input", "dim0", "dim1"),
    "permute": ("input", "dims"),
    "reshape": ("input", "shape"),
    "getitem": ("input", "index"),
    "setitem": ("input", "index", "value"),
    "concatenate": ("tensors", "dim"),
    "stack": ("tensors", "dim"),
    "split": ("input", "sizes", "dim"),
    "mean": ("input", "dim", "keepdim"),
    "sum": ("input", "dim", "keepdim"),
    "var": ("input", "dim", "keepdim"),
    "where": ("condition", "input", "other"),
    "clamp": ("input", "min", "max"),
    "einsum": ("equation", "input", "other"),
    "addcmul": ("input", "tensor1", "tensor2"),
    "masked_fill": ("input", "mask", "value"),
    "normalize": ("input", "p", "dim", "eps"),
    "norm": ("input", "p", "dim", "keepdim"),
    "cumsum": ("input", "dim"),
    "amax": ("input", "dim", "keepdim"),
    "amin": ("input", "dim", "keepdim"),
    "max": ("input", "dim", "keepdim"),
    "min": ("input", "dim", "keepdim"),
    "var_mean": ("input", "dim"),
    "embedding": ("indices", "weight"),
    "conv": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}
_MLX_PARAMETERS = {
    "layer_norm": ("input", "weight", "bias", "eps"),
    "rms_norm": ("input", "weight", "eps"),
    "addmm": ("bias", "input", "other", "alpha", "beta"),
    "attention": ("query", "key", "value"),
    "conv": ("input", "weight", "stride", "padding", "dilation", "groups"),
    "embedding": ("weight", "indices"),
}
# Keywords that mean the same.
KEYWORDS = {
    "axis": "dim",
    "keepdims": "keepdim",
    "attn_mask": "mask",
    "is_causal": "causal",
    "dropout_p": "dropout",
    "ord": "p",
    "axes": "dims",
}

_SAME = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add", "add_": "add",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul", "mul_": "mul", "multiply": "mul",
    "__sub__": "sub", "__isub__": "sub", "sub_": "sub", "subtract": "sub",
    "__truediv__": "div", "__itruediv__": "div", "div_": "div", "divide": "div", "true_divide": "div",
    "__matmul__": "matmul", "bmm": "matmul", "mm": "matmul",
    "__pow__": "pow", "power": "pow", "pow_": "pow",
    "__neg__": "neg", "negative": "neg",
    "__getitem__": "getitem", "__setitem__": "setitem",
    "view": "reshape", "flatten": "reshape", "unflatten": "reshape", "view_as": "reshape", "reshape_as": "reshape",
    "swapaxes": "transpose", "T": "transpose", "mT": "transpose", "t": "transpose", "moveaxis": "permute", "movedim": "permute",
    "expand_dims": "unsqueeze", "broadcast_to": "expand", "expand_as": "expand",
    "cat": "concatenate", "concat": "concatenate",
    "chunk": "split", "tensor_split": "split", "unbind": "split",
    "scaled_dot_product_attention": "attention",
    "astype": "to", "float": "to", "half": "to", "bfloat16": "to", "double": "to", "type": "to", "type_as": "to", "int": "to", "long": "to",
    "contiguous": "copy", "clone": "copy", "detach": "copy", "array": "copy", "asarray": "copy", "cpu": "copy", "stop_gradient": "copy",
    "conv1d": "conv", "conv2d": "conv", "conv3d": "conv", "conv_general": "conv",
    "vector_norm": "norm",
    "clip": "clamp", "clamp_": "clamp",
    "take": "embedding",
    "absolute": "abs", "expit": "sigmoid", "sine": "sin", "cosine": "cos",
    "__eq__": "eq", "equal": "eq", "__ne__": "ne", "not_equal": "ne", "__lt__": "lt", "less": "lt", "__gt__": "gt", "greater": "gt",
    "__le__": "le", "less_equal": "le", "__ge__": "ge", "greater_equal": "ge", "__invert__": "logical_not", "bitwise_not": "logical_not",
}  # fmt: skip
_REVERSED = {"__rsub__": "sub", "rsub": "sub", "__rtruediv__": "div", "__rpow__": "pow", "__rmatmul__": "matmul"}
_TUPLE_LAST = {"reshape", "permute", "expand", "repeat"}  # x.view(2, 3) is x.view((2, 3))


def described(framework, name, args, kwargs):
    """(kind, parameter names, args, kwargs) in one vocabulary."""
    if name in _REVERSED:
        kind = _REVERSED[name]
        args = (args[1], args[0], *args[2:])
    else:
        kind = _SAME.get(name, name)
    if kind in _TUPLE_LAST and len(args) > 2 and all(isinstance(one, int) for one in args[1:]):
        args = (args[0], list(args[1:]))
    if name in ("unbind", "chunk", "T", "mT", "float", "half", "bfloat16", "flatten"):
        kwargs = {**kwargs, "form": name}
    if kind == "einsum" and len(args) == 2:  # of one array: its axes in another order
        kind = "permute"
        args = (args[1], args[0])
    if kwargs:
        kwargs = {KEYWORDS.get(key, key): value for key, value in kwargs.items()}
    names = PARAMETERS.get(kind, ("input",))
    if framework == "mlx":
        names = _MLX_PARAMETERS.get(kind, names)
    return kind, names, args, kwargs
