"""MLX answers an index beyond the end with whatever lies there. This compares indices with the shape first."""

import sys

from . import imports, sources, stops


class BoundsWatch:
    def __init__(self, agent):
        self.agent = agent
        self.enabled, self.stop = True, True
        self._told = set()
        imports.after_import("mlx.core", self._patch)

    def _patch(self, core):
        try:
            self._patch_array(core)
        except Exception as error:
            self.agent.output("warning", f"bounds of MLX indexing are not checked: {type(error).__name__}: {error}")

    def _patch_array(self, core):
        kind, watch = core.array, self
        get, put, take, along = kind.__getitem__, kind.__setitem__, core.take, core.take_along_axis

        def __getitem__(self, index):
            if watch.enabled:
                watch.check_index(self, index, sys._getframe(1))
            return get(self, index)

        def __setitem__(self, index, value):
            if watch.enabled:
                watch.check_index(self, index, sys._getframe(1))
            return put(self, index, value)

        def checked_take(a, indices, axis=None, **more):
            if watch.enabled:
                size = a.size if axis is None else a.shape[axis]
                watch.check_one(a, indices, size, 0 if axis is None else axis, sys._getframe(1))
            return take(a, indices, axis, **more) if axis is not None else take(a, indices, **more)

        def checked_along(a, indices, axis=None, **more):
            if watch.enabled and axis is not None:
                watch.check_one(a, indices, a.shape[axis], axis, sys._getframe(1))
            return along(a, indices, axis, **more)

        kind.__getitem__, kind.__setitem__ = __getitem__, __setitem__
        core.take, core.take_along_axis = checked_take, checked_along
        self._array = kind
        self._raw_get = get
        self._core = core

    def check_index(self, array, index, frame):
        shape = array.shape
        axis = 0
        parts = index if type(index) is tuple else (index,)
        fixed = sum(1 for part in parts if part is not None and part is not Ellipsis)
        for part in parts:
            if part is None:
                continue
            if part is Ellipsis:
                axis += len(shape) - fixed
                continue
            if axis >= len(shape):
                return
            if type(part) is int or isinstance(part, self._array):
                self.check_one(array, part, shape[axis], axis, frame)
            axis += 1

    def check_one(self, array, index, size, axis, frame):
        low = high = index
        if isinstance(index, self._array):
            if index.size == 0 or "int" not in str(index.dtype):
                return
            low, high = index.min().item(), index.max().item()
        elif type(index) is not int:
            return
        if -size <= low and high < size:
            return
        bad = high if high >= size else low
        place = (frame.f_code, frame.f_lineno)
        agent = self.agent
        if agent.dead or place in self._told:
            return
        self._told.add(place)
        while frame is not None and sources.is_machinery(frame.f_code.co_filename):
            frame = frame.f_back
        about = {
            "index": bad,
            "axis": axis,
            "size": size,
            "shape": list(array.shape),
            "expression": stops.location(frame)["text"],
        }
        text = f"index {bad} is outside axis {axis} of size {size} of an array {list(array.shape)}; MLX returns what lies there"
        agent.engine.enter()
        try:
            agent.output("bounds", text, location=stops.location(frame), bounds=about)
            if self.stop:
                agent.stop(frame, "bounds", description=text, bounds=about)
        finally:
            agent.engine.leave()
