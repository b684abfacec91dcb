"""Parts of kernels: compiled within whoever calls them, and not by themselves.

Numba optimizes a function together with all that it calls, and translates it to machine code; and so it does again with the function's
callers, and with theirs. Most of that goes to waste for a function that is only called from others. The code of a part is kept as it is
before that, to be linked into its callers: a cold compilation takes a third less.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, PassManager
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typed_passes import NoPythonSupportedFeatureValidation


class _PartLibrary(JITCodeLibrary):
    """Code to link, of which nothing is in memory for anyone to call."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return _Nowhere


class _Nowhere:
    """In place of the memory that Numba writes the address of a function's environment to: it is for exceptions, and kernels raise none."""

    @staticmethod
    def set_env(name: str, env: Any) -> None:
        pass


@register_pass(mutates_CFG=False, analysis_only=True)
class _IntoCallers(FunctionPass):
    """Have the code that is about to be made put into a library for parts."""

    _name = "into_callers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class PartCompiler(Compiler):
    """Numba's compiler, for parts of kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the steps of Numba's compiler, with one more."""
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.add_pass_after(_IntoCallers, NoPythonSupportedFeatureValidation)
            pipeline.finalize()
        return pipelines
