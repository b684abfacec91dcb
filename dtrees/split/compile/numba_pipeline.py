"""Numba's compiler without the steps that kernels do not need.

Numba's own Python code takes half of the time of a cold start. Some of its work has no effect here: passes for closures, generators and
other features that no kernel uses, a second check of every function after each pass, and comparisons of compiler flags option by option.
Without these patches Numba takes twice as long for the same kernels.

Parts of kernels are compiled within their callers only. Numba optimizes a function together with all that it calls, translates it to
machine code, and repeats this for the function's callers. For a function that only kernels call, most of that is wasted, so its code is
stored as it is before optimization and linked into its callers.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import llvmlite.binding as ll
from numba.core import event, transforms, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, PassManager
from numba.core.compiler_machinery import FunctionPass, _pass_registry, register_pass
from numba.core.funcdesc import default_mangler
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig
from numba.extending import overload
from numba.np import arrayobj

#: Passes for features that no kernel uses (``with``, closures, exceptions with computed arguments, literal unrolling, expressions of
#: whole arrays), and for reports.
_USELESS = {
    typed_passes.AnnotateTypes,
    typed_passes.DumpParforDiagnostics,
    typed_passes.NopythonRewrites,
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.NoPythonSupportedFeatureValidation,
}
#: No pass reads a function after these.
_LAST = {typed_passes.NativeLowering, typed_passes.NoPythonBackend}


class _Passes(PassManager):
    """Passes that run in sequence, without events and timers."""

    def run(self, state: Any) -> None:
        for kind, _ in self.passes:
            info = _pass_registry.get(kind)
            step = info.pass_inst
            step.analysis = self._analysis
            step.run_initialization(state)
            step.run_pass(state)
            step.run_finalizer(state)
            if info.mutates_CFG and kind not in _LAST:
                state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)


class KernelCompiler(Compiler):
    """Numba's compiler, for kernels."""

    first_of_lowering: tuple[Any, ...] = ()

    def define_pipelines(self) -> list[PassManager]:
        """Return the steps of Numba's compiler without those listed above."""
        (usual,) = super().define_pipelines()
        passes = _Passes(usual.pipeline_name)
        for kind, description in usual.passes:
            if kind is typed_passes.NativeLowering:
                for own in self.first_of_lowering:
                    passes.add_pass(own, "")
            if kind not in _USELESS:
                passes.add_pass(kind, description)
        passes.finalize()
        self.state.type_annotation = ""
        return [passes]


class _PartLibrary(JITCodeLibrary):
    """A library of code to link, without machine code in memory."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        # Numba does the same in its copies of code to link; this library has no other use.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == ll.Linkage.external:
                function.linkage = "linkonce_odr"
        self._shared_module = self._final_module
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return _Nowhere


class _Nowhere:
    """Replace the memory for the address of a function's environment, which only exceptions need: kernels raise none."""

    @staticmethod
    def set_env(name: str, env: Any) -> None:
        pass


@register_pass(mutates_CFG=False, analysis_only=True)
class _IntoCallers(FunctionPass):
    """Put the code of the current function into a library for parts."""

    _name = "into_callers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class PartCompiler(KernelCompiler):
    """Numba's compiler, for parts of kernels."""

    first_of_lowering = (_IntoCallers,)


def _options_equal(one: Any, other: Any) -> Any:
    if not isinstance(other, TargetConfig):
        return NotImplemented
    if one._values == other._values:
        return True
    return _all_options(one) == _all_options(other)


def _all_options(options: Any) -> dict[str, Any]:
    kind = type(options)
    if kind not in _defaults:
        _defaults[kind] = {name: option.default for name, option in kind.options.items()}
    return _defaults[kind] | options._values


def _hash_options(options: Any) -> int:
    return hash(type(options).__name__)


_defaults: dict[type, dict[str, Any]] = {}


def _short_name(name: str, argument_types: Any, *, abi_tags: Any = (), uid: int | None = None) -> str:
    """Return a short name of a compiled function: a digest replaces its argument types, which may be a hundred arrays."""
    digest = hashlib.sha256(repr((argument_types, abi_tags)).encode()).hexdigest()[:16]
    return default_mangler(name, (), abi_tags=(digest,), uid=uid)


def _raise_mismatch(source_shape: Any, shape: Any) -> None:
    """Raise an error for an array of the wrong shape. Numba's own version formats a message, which takes seconds to compile."""


@overload(_raise_mismatch)
def _compile_raise_mismatch(source_shape: Any, shape: Any) -> Any:
    def raise_mismatch(source_shape: Any, shape: Any) -> None:
        raise ValueError("cannot assign an array of another shape")

    return raise_mismatch


@contextmanager
def _signals_later() -> Iterator[None]:
    """Delay Python's signal handlers. LLVM calls Python to pass the machine code, and an exception raised in that call is lost.

    After an interrupt there, the kernel could not be saved: Numba reported a missing compiled object.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are handled by the main thread only
        yield
        return
    came: list[int] = []
    handlers = {number: handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)


def _finalize(library: Any) -> None:
    with _signals_later():
        _numba_finalize(library)


_numba_finalize = JITCodeLibrary._finalize_specific


def _no_timer(kind: str, callback: Any) -> AbstractContextManager[None]:
    """Return no timer: Numba would call every function that is being compiled at each call of LLVM."""
    return nullcontext()


def _start_event(kind: str, data: Any = None) -> None:
    """Create an event only if there is a listener."""
    if event._registered[kind]:
        _numba_start_event(kind, data)


def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    if event._registered[kind]:
        _numba_end_event(kind, data, exc_details)


_numba_start_event, _numba_end_event = event.start_event, event.end_event


#: Attributes of Numba that are replaced while kernels are compiled.
_REPLACED = (
    (TargetConfig, "__eq__", _options_equal),
    (TargetConfig, "__hash__", _hash_options),
    (JITCodeLibrary, "_finalize_specific", _finalize),
    (arrayobj, "raise_with_shape_context", _raise_mismatch),
    (event, "install_timer", _no_timer),
    (event, "start_event", _start_event),
    (event, "end_event", _end_event),
)
_depth = 0
_usual: dict[tuple[Any, str], Any] = {}


@contextmanager
def quickly() -> Iterator[None]:
    """Replace attributes of Numba (``_REPLACED``), and give functions short names, while its compiler lock is held."""
    global _depth
    context = cpu_target.target_context
    if _depth == 0:
        _usual.update({(owner, name): vars(owner)[name] for owner, name, _ in _REPLACED})
        for owner, name, ours in _REPLACED:
            setattr(owner, name, ours)
        context.mangler = _short_name
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0:
            for (owner, name), theirs in _usual.items():
                setattr(owner, name, theirs)
            del context.mangler
