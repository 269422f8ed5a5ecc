"""Acting when a module is imported, and answering for modules with others.

Standing first on `sys.meta_path`, the finder lets the others find a module, and calls those who
wait for it once it has run. Nothing is imported before the program does so.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Then(importlib.abc.Loader):
    """The loader of a module, and what is to be done after it."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader = loader
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module goes on with its own loader, which it may ask for its data.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _finder.imported(self._name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Running(ModuleSpec):
    """The description of a module whose import began before anybody waited for it.

    The import system sets `_initializing` when the module has run, or has failed.
    """

    @property
    def _initializing(self) -> bool:
        return self.__dict__.get("_initializing", False)

    @_initializing.setter
    def _initializing(self, running: bool) -> None:
        self.__dict__["_initializing"] = running
        if not running:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            _finder.run(self)


class _Instead(importlib.abc.Loader):
    """Puts another module in the place of the one that is imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # What stands in `sys.modules` afterwards is what the import gives.
        sys.modules[module.__name__] = importlib.import_module(self._name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
        self._instead: dict[str, str] = {}
        self._searching = threading.local()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if instead := self._instead.get(fullname):
            # A package, so that its submodules are looked for here as well.
            return ModuleSpec(fullname, _Instead(instead), is_package=True)
        if fullname not in self._waiting or getattr(self._searching, "now", None) == fullname:
            return None
        self._searching.now = fullname
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.now = None
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        spec.loader = _Then(spec.loader, fullname)
        return spec

    def imported(self, name: str, module: ModuleType) -> None:
        for act in self._waiting.pop(name, ()):
            act(module)

    def when_imported(self, name: str, act: Callable[[ModuleType], None]) -> None:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        # A module that is still running is there, but not whole.
        if module is not None and not getattr(spec, "_initializing", False):
            act(module)
            return
        self._waiting.setdefault(name, []).append(act)
        self._stand_first()
        if type(spec) is ModuleSpec:
            # This finder may not have been there when its import began.
            spec.__class__ = _Running
            if not getattr(spec, "_initializing", False):
                # Another thread ended it meanwhile.
                spec.__class__ = ModuleSpec
                self.run(spec)

    def run(self, spec: ModuleSpec) -> None:
        """A module has run, if it is there."""
        module = sys.modules.get(spec.name)
        if module is not None:
            self.imported(spec.name, module)

    def replace(self, name: str, by: str) -> None:
        self._instead[name] = by
        self._stand_first()

    def restore(self, name: str) -> None:
        self._instead.pop(name, None)

    def _stand_first(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)


_finder = _Finder()


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Calls `act` with the module `name`: now, if it was imported, else after its import."""
    _finder.when_imported(name, act)


def replace(name: str, by: str) -> None:
    """From now on an import of `name` gives the module `by`. It is imported when it is needed."""
    _finder.replace(name, by)


def restore(name: str) -> None:
    """Takes back `replace`."""
    _finder.restore(name)
