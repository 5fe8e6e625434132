"""Register tvmpass's two pipelines with TVM, without importing TVM early.

``relax.get_pipeline("tvmpass")`` and ``tir_pipeline="tvmpass"`` work once both
packages are imported, in either order; ``tvmpass --help`` imports no TVM.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys

_AFTER = "tvm"


def register_when_tvm_is_there() -> None:
    """Register now if TVM is imported, else right after it is."""
    if _AFTER in sys.modules and hasattr(sys.modules[_AFTER], "relax"):
        _register()
    else:
        sys.meta_path.insert(0, _AfterTVM())


def _register() -> None:
    from tvm import relax
    from tvm.tirx import compilation_pipeline

    def relax_pipeline(target=None):
        from tvmpass.compile.passes import pipeline

        return pipeline(target)

    def tir_pipeline():
        from tvmpass.compile.passes import kernel_pipeline

        return kernel_pipeline()

    if "tvmpass" not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline("tvmpass")(relax_pipeline)
    if "tvmpass" not in compilation_pipeline.PIPELINE_MAP:
        compilation_pipeline.register_tir_pipeline("tvmpass", tir_pipeline)


class _AfterTVM(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Wraps the loader of ``tvm`` once, to register when it has run."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != _AFTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register()
