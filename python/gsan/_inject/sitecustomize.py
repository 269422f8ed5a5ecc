"""First on the path of every Python process under `gsan run`: plugs GSan in, then makes way for the
`sitecustomize` that would have been found without it.

It loads the package from beside itself, so that a program's own environment need not have it, and
prints what fails: a program must run where GSan cannot.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))


def _package():
    """The package, under its name, without putting its folder on the path."""
    if "gsan" in sys.modules:
        return sys.modules["gsan"]
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "gsan", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["gsan"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["gsan"]
        raise
    return module


def _plug_in():
    try:
        _package()
        from gsan import _install

        _install.run_checked()
    except Exception as error:
        print(f"gsan: cannot check this process: {error}", file=sys.stderr)


def _go_on():
    """Runs the next `sitecustomize` on the path, if there is one."""
    others = [path for path in sys.path if os.path.realpath(path or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_plug_in()
_go_on()
