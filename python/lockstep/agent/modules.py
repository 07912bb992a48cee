"""Outputs of torch and MLX modules, under the names that recordings give them."""

import sys

from . import imports


class ModuleWatch:
    """Stands where the recorder stands when a program is recorded: module calls go through call()."""

    def __init__(self, features):
        self._features = features
        self._interest = {}  # module name → breakpoints
        self._stacks = {}  # thread → modules whose call is running
        self._namings = {}  # id → what names modules of one framework
        self.ready = False
        self._waiting = {"torch.nn.modules.module": self._patch_torch, "mlx.nn.layers.base": self._patch_mlx}
        for name in list(self._waiting):
            imports.after_import(name, lambda module, name=name: self._arrived(name, module))

    def _arrived(self, name, module):
        patch = self._waiting.pop(name, None)
        if patch is None:
            return
        agent = self._features.agent
        agent.engine.enter()
        try:
            patch(module)
            self.ready = True
            self._features.modules_ready()
        except Exception as error:
            agent.output("warning", f"modules of {name} are not watched: {type(error).__name__}: {error}")
        finally:
            agent.engine.leave()

    def _patch_torch(self, module):
        from .features import load_package

        load_package()
        from lockstep.recorder import torch_modules

        torch_modules.patch(module, self)

    def _patch_mlx(self, module):
        from .features import load_package

        load_package()
        from lockstep.recorder import mlx_modules

        mlx_modules.patch(module, self)

    # -- what the recorder's patches expect -----------------------------------------------------------------------------
    def announce_aliases(self, aliases):
        pass

    def stack(self):
        import _thread

        return self._stacks.setdefault(_thread.get_ident(), [])

    def forget_interest(self):
        self._interest.clear()

    def names(self):
        return list(self._interest)

    def known_names(self):
        return {
            entry[1]
            for naming in self._namings.values()
            for entry in list(naming._names.values())
            if entry[1] is not None
        }

    def call(self, names, function, module, args, kwargs):
        agent = self._features.agent
        features = self._features
        if agent.dead or not (features._data_breaks or features.gate is not None):
            return function(module, *args, **kwargs)
        stack = self.stack()
        name = named = None
        agent.engine.enter()
        try:
            self._namings[id(names)] = names
            named = names.name_of(module, stack[-1] if stack else None)
            name = named or type(module).__name__
        except Exception:
            pass
        finally:
            agent.engine.leave()
        stack.append(module)
        try:
            output = function(module, *args, **kwargs)
        finally:
            stack.pop()
        if name is None:
            return output
        if features.gate is not None and named is not None:
            agent.engine.enter()
            try:
                output = features.meet(name, module, output, sys._getframe(1))
            finally:
                agent.engine.leave()
        wanted = self._interest.get(name)
        if wanted is None:
            wanted = self._interest[name] = self._features.wants(name)
        if wanted:
            agent.engine.enter()
            try:
                self._features.module_output(name, module, output, wanted, sys._getframe(1))
            finally:
                agent.engine.leave()
        return output
