"""Runs a function when the program imports a module, without importing it ourselves. Imports nothing but sys: the agent
starts before anything else."""

import sys


class _Loader:
    """The module's own loader, with a call at the end."""

    def __init__(self, loader, action):
        self._loader, self._action = loader, action

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # From here on the module shall look as if we had never been there.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder:
    """Stands first on sys.meta_path, and asks those behind it."""

    def __init__(self):
        self.actions = {}
        self.general = []  # (whether a module of that name is meant, action)

    def find_spec(self, name, path=None, target=None):
        actions = [self.actions[name]] if name in self.actions else []
        actions += [action for meant, action in self.general if meant(name)]
        if not actions:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, _in_turn(actions))
                return spec
        return None


def _in_turn(actions):
    def run(module):
        for action in actions:
            action(module)

    return run


_finder = _Finder()


def after_import(name, action):
    """Calls action(module) once the module has run: now if it has already."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    before = _finder.actions.get(name)
    _finder.actions[name] = action if before is None else _in_turn([before, action])
    _install()


def after_each_import(meant, action):
    """The same for every module to come whose name is meant."""
    _finder.general.append((meant, action))
    _install()


def _install():
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
