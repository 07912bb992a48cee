"""For `lockstep record --health`: what only the running program can tell, noted beside the records.

Attention by head, without keeping scores; tensors that are not contiguous and whose raw memory is read; lazy or gradient graphs
that grow from step to step; arrays that share memory and are written to.
"""

import functools
import json
import math
import os
import sys
import threading
import weakref

from . import _session
from .agent.imports import after_import
from .recorder.core import _calling_line

_MOST_NOTES = 20_000
_MOST_QUERIES = 64  # of each head: enough to tell a uniform head from one that looks somewhere
_MOST_SCORES = 1 << 22
_MANY_STEPS = 8
_MOST_WATCHED = 2048
# Libraries that ask for addresses in order to know which tensors are the same, or that handle strides themselves.
_KNOWING = (
    "torch.",
    "transformers.",
    "diffusers.",
    "safetensors.",
    "accelerate.",
    "numpy.",
    "lockstep.",
    "huggingface_hub.",
    "mlx.",
)


class HealthWatch:
    def __init__(self, folder, recorder):
        os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8")
        self._notes = 0
        self._told = set()
        self._lock = threading.Lock()
        self._busy = threading.local()
        self.recorder = recorder
        self._since_evaluation = {}  # root module → calls since the program evaluated something
        self._with_graph = {}  # root module → calls in a row whose inputs hang on earlier ones
        self._watched = []  # (weak reference, name, place, version)

    def note(self, kind, **facts):
        with self._lock:
            if self._notes >= _MOST_NOTES:
                return
            self._notes += 1
            self._file.write(json.dumps({"kind": kind, **facts}) + "\n")
            self._file.flush()

    def note_once(self, key, kind, **facts):
        if key not in self._told:
            self._told.add(key)
            self.note(kind, **facts)

    def place(self):
        found = _calling_line(sys._getframe(2))
        return {"file": found[0], "line": found[1], "function": found[2]} if found else None

    def holder(self):
        """The innermost module that is running."""
        stack = self.recorder.stack()
        for framework in ("torch", "mlx"):
            names = getattr(self.recorder, f"{framework}_names", None)
            if stack and names is not None and names.known(stack[-1]):
                return names.full_name_of(stack[-1])
        return None

    # Attention.

    def watch_attention(self, module, attribute, statistics):
        original = getattr(module, attribute, None)
        if original is None or getattr(original, "_lockstep", False):
            return

        @functools.wraps(original)
        def attention(*args, **kwargs):
            out = original(*args, **kwargs)
            if not getattr(self._busy, "on", False) and not self.recorder.is_traced():
                self._busy.on = True
                try:
                    given = dict(zip(("q", "k", "v"), args))
                    q, k, v = (
                        given[name] if name in given else kwargs.get(whole, kwargs.get(name))
                        for name, whole in (("q", "query"), ("k", "key"), ("v", "value"))
                    )
                    facts = statistics(q, k, args[3:], kwargs)
                    if facts is not None:
                        shapes = {name: list(one.shape) for name, one in (("q", q), ("k", k), ("v", v))}
                        self.note("attention", name=self.holder() or attribute, where=self.place(), **shapes, **facts)
                except Exception as error:  # of ours: the program has its result
                    self.note_once(("attention", type(error)), "trouble", what=str(error))
                finally:
                    self._busy.on = False
            return out

        attention._lockstep = True
        setattr(module, attribute, attention)

    # Graphs that grow.

    def root_called(self, framework, name, args, kwargs):
        values = (*args, *kwargs.values())
        if framework == "mlx":
            calls = self._since_evaluation[name] = self._since_evaluation.get(name, 0) + 1
            if calls == _MANY_STEPS:
                self.note_once(
                    ("lazy", name), "growing_graph", name=name, where=self.place(), calls=calls, framework="mlx"
                )
        else:
            torch = sys.modules["torch"]
            hangs = any(isinstance(one, torch.Tensor) and one.grad_fn is not None for one in values)
            calls = self._with_graph[name] = self._with_graph.get(name, 0) + 1 if hangs else 0
            if calls == _MANY_STEPS:
                self.note_once(
                    ("graph", name), "growing_graph", name=name, where=self.place(), calls=calls, framework="torch"
                )

    def evaluated(self):
        self._since_evaluation.clear()

    # Memory that two arrays share.

    def watch_output(self, name, tensor, where):
        """Of torch and NumPy; MLX arrays are never written to."""
        kept = []
        new = _extent(tensor)
        if new is None:
            return
        for reference, other_name, place, version, extent in self._watched:
            other = reference()
            if other is None:
                continue
            kept.append((reference, other_name, place, version, extent))
            if other is tensor or other_name == name or not _overlap(extent, new):
                continue
            if _version(other) != version and not _is_view_of(tensor, other) and not _is_view_of(other, tensor):
                self.note_once(("shared", other_name, name), "shared_memory", name=other_name, other=name, where=place)
        kept.append((_weak(tensor), name, where, _version(tensor), new))
        self._watched = [one for one in kept[-_MOST_WATCHED:] if one[0] is not None]


def _weak(tensor):
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


def _extent(tensor):
    """First and last byte of one without gaps: others may lie between each other and share nothing."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.numel() > 0:
        if not tensor.is_contiguous():
            return None
        start = torch._C.TensorBase.data_ptr(tensor)
        return start, start + tensor.numel() * tensor.element_size()
    if numpy is not None and type(tensor) is numpy.ndarray and tensor.size > 0 and tensor.flags.c_contiguous:
        start = tensor.__array_interface__["data"][0]
        return start, start + tensor.nbytes
    return None


def _overlap(a, b):
    return a[0] < b[1] and b[0] < a[1]


def _version(tensor):
    version = getattr(tensor, "_version", None)
    if version is not None:
        return version
    return hash(tensor.tobytes()) if tensor.nbytes <= 1 << 22 else hash(tensor.ravel()[:4096].tobytes())


def _is_view_of(a, b):
    """A view that its program knows as one: made from it, or both from the same."""
    base = getattr(a, "_base", None)
    return base is not None and base is b


def _torch_attention(q, k, args, kwargs):
    torch = sys.modules["torch"]
    mask = kwargs.get("attn_mask", args[0] if args else None)
    causal = kwargs.get("is_causal", args[2] if len(args) > 2 else False)
    scale = kwargs.get("scale") or 1 / math.sqrt(q.shape[-1])
    if q.ndim != 4 or q.device.type != "cpu":
        return None
    with torch.no_grad():
        queries, keys = q.shape[-2], k.shape[-2]
        rows = torch.linspace(
            0, queries - 1, min(queries, _MOST_QUERIES, max(1, _MOST_SCORES // max(1, q.shape[1] * keys)))
        ).long()
        q, k = q[:1, :, rows].float(), k[:1].float()
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        scores = q @ k.transpose(-1, -2) * scale
        if causal:
            scores = scores.masked_fill(rows[:, None] < torch.arange(keys)[None], float("-inf"))
        if mask is not None:
            part = mask[:1] if mask.ndim == 4 else mask
            part = part[..., rows, :] if part.shape[-2] == queries else part
            scores = scores.masked_fill(~part, float("-inf")) if part.dtype == torch.bool else scores + part.float()
        visible = (scores > float("-inf")).sum(-1).clamp(min=1).float()
        p = scores.softmax(-1)
        entropy = -(p * p.clamp(min=1e-30).log()).sum(-1)
        return _by_head(
            entropy[0].tolist(),
            visible[0].expand_as(entropy[0]).tolist(),
            p[0].amax(-1).tolist(),
            p[0, :, :, 0].tolist(),
            p[0].argmax(-1).tolist(),
        )


def _mlx_attention(q, k, args, kwargs):
    mx = sys.modules["mlx.core"]
    if q.ndim != 4:
        return None
    queries, keys = q.shape[-2], k.shape[-2]
    count = min(queries, _MOST_QUERIES, max(1, _MOST_SCORES // max(1, q.shape[1] * keys)))
    rows = mx.array([round(i * (queries - 1) / max(count - 1, 1)) for i in range(count)])
    q, k = q[:1][:, :, rows].astype(mx.float32), k[:1].astype(mx.float32)
    if k.shape[1] != q.shape[1]:
        k = mx.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scores = (q @ k.swapaxes(-1, -2)) * kwargs.get("scale", 1 / math.sqrt(q.shape[-1]))
    mask = kwargs.get("mask")
    if isinstance(mask, str):
        scores = mx.where(rows[:, None] + (keys - queries) < mx.arange(keys)[None], -math.inf, scores)
    elif mask is not None:
        part = mask[..., rows, :] if mask.shape[-2] == queries else mask
        scores = mx.where(part, scores, -math.inf) if part.dtype == mx.bool_ else scores + part.astype(mx.float32)
    visible = mx.maximum((scores > -math.inf).sum(-1), 1)
    p = mx.softmax(scores, axis=-1)
    entropy = -(p * mx.log(mx.maximum(p, 1e-30))).sum(-1)
    return _by_head(
        entropy[0].tolist(),
        visible[0].tolist(),
        p[0].max(-1).tolist(),
        p[0, :, :, 0].tolist(),
        p[0].argmax(-1).tolist(),
    )


def _by_head(entropy, visible, largest, first, where):
    """For each head: entropy as a share of the largest possible, the share that the first key takes, the smallest of the largest
    weights, how far the weights are from equal, and whether all queries look at one key."""
    heads = []
    for e, n, top, sink, at in zip(entropy, visible, largest, first, where):
        wide = [i for i, keys in enumerate(n) if keys > 1]
        if not wide:
            return None
        heads.append(
            {
                "entropy": sum(e[i] / math.log(n[i]) for i in wide) / len(wide),
                "sink": sum(sink[i] for i in wide) / len(wide),
                "least_top": min(top[i] for i in wide),
                "most_over_equal": max(top[i] * n[i] for i in wide) - 1,
                "one_key": len({at[i] for i in wide}) == 1,
                "queries": len(wide),
            }
        )
    return {"heads": heads}


def start(folder, recorder):
    watch = HealthWatch(folder, recorder)
    after_import(
        "torch.nn.functional",
        lambda module: watch.watch_attention(module, "scaled_dot_product_attention", _torch_attention),
    )
    after_import("mlx.core", lambda module: _watch_mlx(watch, module))
    after_import("torch._tensor", lambda module: _watch_addresses(watch, module))
    call, offer = recorder.call, _session.Session.offer

    def watched_call(names, function, module, args, kwargs):
        if not recorder.stack() and not recorder.is_traced():
            try:
                watch.root_called(names.framework, names.full_name_of(module), args, kwargs)
            except Exception as error:
                watch.note_once(("root", type(error)), "trouble", what=str(error))
        return call(names, function, module, args, kwargs)

    def watched_offer(session, name, value, *, role="checkpoint", where=None, **more):
        result = offer(session, name, value, role=role, where=where, **more)
        if role != "input":
            try:
                watch.watch_output(
                    name, value, {"file": where[0], "line": where[1], "function": where[2]} if where else None
                )
            except Exception as error:
                watch.note_once(("output", type(error)), "trouble", what=str(error))
        return result

    recorder.call, _session.Session.offer = watched_call, watched_offer
    return watch


def _watch_mlx(watch, mlx):
    fast = getattr(mlx, "fast", None)
    if fast is not None:
        watch.watch_attention(fast, "scaled_dot_product_attention", _mlx_attention)
    for holder, names in (
        (mlx, ("eval", "async_eval", "synchronize")),
        (mlx.array, ("item", "tolist", "__array__", "__bool__", "__float__", "__int__", "__repr__", "__buffer__")),
    ):
        for name in names:
            original = getattr(holder, name, None)
            if original is None:
                continue
            try:
                setattr(holder, name, _counted(watch, original))
            except (AttributeError, TypeError):  # a type that does not let itself be changed
                pass


def _counted(watch, original):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if not (sys._getframe(1).f_globals.get("__name__") or "").startswith("lockstep."):
            watch.evaluated()
        return original(*args, **kwargs)

    return call


def _watch_addresses(watch, module):
    kind = module.Tensor
    original = kind.data_ptr

    def data_ptr(self):
        caller = sys._getframe(1)
        if not self.is_contiguous() and not (caller.f_globals.get("__name__") or "").startswith(_KNOWING):
            key = (caller.f_code.co_filename, caller.f_lineno)
            where = {"file": key[0], "line": key[1], "function": caller.f_code.co_name}
            watch.note_once(
                ("address", key),
                "raw_memory",
                name=watch.holder() or caller.f_code.co_name,
                where=where,
                shape=list(self.shape),
                strides=list(self.stride()),
            )
        return original(self)

    kind.data_ptr = data_ptr
