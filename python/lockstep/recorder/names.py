"""Which name a module object has: component, then checkpoint prefix."""

import gc
import re
import weakref

_MOST_SEARCHES = (
    32  # of all objects for a module's parents; after that, programs that make modules as they go are named by class
)


class Framework:
    """What naming needs to know of a module system."""

    def __init__(self, name, kind, children, weights=None):
        self.name = name  # torch, mlx, ...
        self.kind = kind  # the base class of modules
        self.children = children  # module → [(attribute path, child module)]
        self.weights = weights or (lambda module: ())  # module → (name, tensor) that it holds itself


def modules_below(attributes, is_module):
    """[(path, module)] among these (name, value), lists and dictionaries looked through."""
    found = []

    def visit(path, value):
        if is_module(value):
            found.append((path, value))
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                visit(f"{path}.{index}", item)
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(f"{path}.{key}", item)

    for key, value in attributes:
        visit(key, value)
    return found


class ModuleNames:
    def __init__(self, framework, announce):
        self._framework = framework
        self._announce = announce  # called with {name: [other names]} for modules that sit in two places
        self._names = {}  # id → (weak reference, name or None)
        self._inputs_only = {}  # id → name of a pipeline's root: its outputs are stages of the pipeline
        self._unnamed = {}  # id → what a module that is not recorded would be called
        self._taken = {}  # root name → weak references to the root and to the pipeline that holds it
        self._searches = 0

    @property
    def framework(self):
        return self._framework.name

    def known(self, module):
        entry = self._names.get(id(module))
        return entry is not None and entry[0]() is module

    def name_of(self, module, parent=None):
        """The module's name; None when it is not to be recorded. `parent`: the module whose forward calls it."""
        entry = self._names.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        if parent is not None and self.known(parent):
            return self._name_inside(module, parent)
        root = self._root_of(module)
        if root is not module and self.known(root):  # put there since the whole was named
            return self._name_inside(module, root)
        self.add_root(type(root).__name__, root, record_root=True)
        entry = self._names.get(id(module))
        if entry is None or entry[0]() is not module:
            self._remember(module, type(module).__name__)
            return type(module).__name__
        return entry[1]

    def full_name_of(self, module, parent=None):
        """A name for any module, whether its outputs are worth recording or not."""
        return self.name_of(module, parent) or self._unnamed.get(id(module)) or type(module).__name__

    def weights_of(self, module):
        return self._framework.weights(module)

    def input_name_of(self, module):
        """For a module without a name of its own whose inputs are still worth recording; else None."""
        return self._inputs_only.get(id(module)) if self.known(module) else None

    def add_root(self, component, root, record_root, owner=None):
        """Names a whole tree. Outputs of a pipeline's root modules are recorded as stages, not under a module name.

        `owner`: the pipeline. What it holds in a component's place bears the component's name, whatever was there before.
        """
        component = self._free_name(component, root, owner)
        aliases = {}
        nested_language_model = self._has_nested_language_model(root)
        for path, module in self._walk(root):
            name = component if not path else f"{component}.{checkpoint_path(path, nested_language_model)}"
            skipped = not path and not record_root
            # A wrapper whose output its language model repeats, and logits that a pipeline never looks at.
            skipped |= nested_language_model and (path == "model" or (path == "lm_head" and not record_root))
            entry = self._names.get(id(module))
            if entry is not None and entry[0]() is module:
                if entry[1] is not None and entry[1] != name:
                    aliases.setdefault(entry[1], []).append(name)
                continue
            self._remember(module, None if skipped else name)
            if skipped:
                self._unnamed[id(module)] = name
            if not path and not record_root:
                self._inputs_only[id(module)] = name
        if aliases:
            self._announce(aliases)

    def _remember(self, module, name):
        self._names[id(module)] = (weakref.ref(module), name)

    def _free_name(self, component, root, owner=None):
        candidate, number = component, 1
        while not self._is_free(candidate, root, owner):
            number += 1
            candidate = f"{component}_{number}"
        self._taken[candidate] = (weakref.ref(root), weakref.ref(owner) if owner is not None else None)
        return candidate

    def _is_free(self, candidate, root, owner):
        holder, holders_owner = self._taken.get(candidate, (None, None))
        if holder is None or holder() is None or holder() is root:
            return True
        return owner is not None and holders_owner is not None and holders_owner() is owner

    def _has_nested_language_model(self, root):
        return any(path == "model.language_model" for path, _ in self._walk(root, depth=2))

    def _walk(self, root, depth=None):
        """(path, module) of the tree in order of definition; a module in two places comes twice."""
        stack = [("", root, 0, frozenset((id(root),)))]
        while stack:
            path, module, level, above = stack.pop()
            yield path, module
            if depth is not None and level >= depth:
                continue
            inner = []
            for name, child in self._framework.children(module):
                if id(child) not in above:  # a module that holds itself
                    inner.append((f"{path}.{name}" if path else name, child, level + 1, above | {id(child)}))
            stack.extend(reversed(inner))

    def _name_inside(self, module, parent):
        """A module that its parent got after it was named, holds in a plain list or dict, or makes as it goes."""
        parent_name = self._names[id(parent)][1] or self._unnamed.get(id(parent)) or type(parent).__name__
        path = next((path for path, inner in self._walk(parent) if inner is module), None) or self._plain_path(
            module, parent
        )
        name = f"{parent_name}.{path or type(module).__name__}"
        for inner_path, inner in self._walk(module):
            # What the new module has taken in was in its place before: a layer that was wrapped is now a part of it.
            known = self._names[id(inner)][1] if self.known(inner) else name
            if known is not None and (known == name or known.startswith(f"{name}.")):
                self._remember(inner, f"{name}.{inner_path}" if inner_path else name)
        return name

    @staticmethod
    def _plain_path(module, parent):
        for attribute, value in list(vars(parent).items()):
            if value is module:
                return attribute
            if isinstance(value, (list, tuple)):
                index = next((i for i, item in enumerate(value) if item is module), None)
            elif isinstance(value, dict) and not attribute.startswith("_"):
                index = next((key for key, item in value.items() if item is module), None)
            else:
                continue
            if index is not None:
                return f"{attribute}.{index}"
        return None

    def _root_of(self, module):
        """The topmost module that holds this one: its name must not depend on which part is called first."""
        if self._searches >= _MOST_SEARCHES:
            return module
        self._searches += 1
        parents = {}
        for candidate in gc.get_objects():
            try:
                if issubclass(type(candidate), self._framework.kind):  # isinstance would run properties of proxies
                    for _, child in self._framework.children(candidate):
                        parents.setdefault(id(child), candidate)
            except Exception:  # objects half made, proxies that raise
                continue
        seen = set()
        while id(module) in parents and id(module) not in seen:
            seen.add(id(module))
            module = parents[id(module)]
        return module


def checkpoint_path(path, nested_language_model):
    """Qwen2.5-VL in memory calls model.language_model.layers what its checkpoints call model.layers."""
    if not nested_language_model:
        return path
    path = re.sub(r"^model\.language_model(?=\.|$)", "model", path)
    return re.sub(r"^model\.visual(?=\.|$)", "visual", path)
