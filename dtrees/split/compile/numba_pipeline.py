"""Numba's compiler, without what kernels have no use for.

Three quarters of a cold start is not spent in LLVM but in Numba's own Python code. Much of that is work that leads to nothing here: passes
for closures, generators and other things that no kernel has, a second look at every function after each pass, comparisons of compiler flags
option by option, names of functions that spell out the types of a hundred arrays, and notes on types for a report nobody asks for.

Parts of kernels are compiled within whoever calls them, and not by themselves. Numba optimizes a function together with all that it calls,
and translates it to machine code; and so it does again with the function's callers, and with theirs. Most of that goes to waste for a
function that is only called from others. The code of a part is kept as it is before that, to be linked into its callers.

Long kernels are cut at a few calls: what is called there is compiled apart, by itself, and found by its name in memory, as functions of a
shared library are. So no caller compiles it once more, and several processes can compile a kernel together.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import llvmlite.binding as ll
from numba.core import transforms, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, PassManager
from numba.core.compiler_machinery import FunctionPass, _pass_registry, register_pass
from numba.core.funcdesc import default_mangler
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig
from numba.extending import overload
from numba.np import arrayobj

#: Passes for what no kernel has: ``with``, closures, exceptions with computed arguments, literal unrolling; and reports.
_USELESS = {
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.AnnotateTypes,
    typed_passes.DumpParforDiagnostics,
}
#: Nobody looks at a function again after these.
_LAST = {typed_passes.NativeLowering, typed_passes.NoPythonBackend}


class _Passes(PassManager):
    """Passes that are run one after the other, without events and timers."""

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
        """Return the steps of Numba's compiler, but for some."""
        pipelines = []
        for usual in super().define_pipelines():
            passes = _Passes(usual.pipeline_name)
            for kind, description in usual.passes:
                if kind is typed_passes.NativeLowering:
                    for own in self.first_of_lowering:
                        passes.add_pass(own, "")
                if kind not in _USELESS:
                    passes.add_pass(kind, description)
            passes.finalize()
            pipelines.append(passes)
        self.state.type_annotation = ""
        return pipelines


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


class PartCompiler(KernelCompiler):
    """Numba's compiler, for parts of kernels."""

    first_of_lowering = (_IntoCallers,)


class _SeparateLibrary(JITCodeLibrary):
    """Code that callers find by its name in memory, rather than have linked into theirs."""

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        return ll.parse_assembly("")


@register_pass(mutates_CFG=False, analysis_only=True)
class _Apart(FunctionPass):
    """Have the code that is about to be made put into a library that is not linked, under a name that is the same in every process."""

    _name = "apart"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = _SeparateLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.func_id.unique_id = None
        return False


class SeparateCompiler(KernelCompiler):
    """Numba's compiler, for kernels that are compiled apart from their callers."""

    first_of_lowering = (_Apart,)


class Load(NamedTuple):
    """Load a kernel that is compiled apart: what calls it does so first."""

    module: str
    name: str
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        """Load the kernel, or compile it."""
        kernel = import_module(self.module)
        for name in self.name.split("."):
            kernel = getattr(kernel, name)
        kernel.compile(self.arguments)


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
    """Return the name of a compiled function, with a digest of its argument types in place of them all.

    A kernel that is compiled apart has no ``uid``, and one name whatever it is compiled for: Numba's tags tell whether that was a caller.
    """
    digest = hashlib.sha256(repr((argument_types, abi_tags if uid is not None else ())).encode()).hexdigest()[:16]
    return default_mangler(name, (), abi_tags=(digest,), uid=uid)


def _raise_mismatch(source_shape: Any, shape: Any) -> None:
    """Raise an error where an array does not fit what it is assigned to; Numba's own composes text, which takes seconds to compile."""


@overload(_raise_mismatch)
def _compile_raise_mismatch(source_shape: Any, shape: Any) -> Any:
    def raise_mismatch(source_shape: Any, shape: Any) -> None:
        raise ValueError("cannot assign an array of another shape")

    return raise_mismatch


@contextmanager
def _signals_later() -> Iterator[None]:
    """Have Python's handlers of signals wait. LLVM calls Python to hand over the machine code, and what a handler raises there is lost.

    An interrupt was, and the kernel could not be saved: Numba said that there was no compiled object.
    """
    if threading.current_thread() is not threading.main_thread():  # others handle no signals
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

#: What is replaced in Numba while kernels are compiled.
_REPLACED = (
    (TargetConfig, "__eq__", _options_equal),
    (TargetConfig, "__hash__", _hash_options),
    (JITCodeLibrary, "_finalize_specific", _finalize),
    (arrayobj, "raise_with_shape_context", _raise_mismatch),
)
_depth = 0
_usual: dict[tuple[Any, str], Any] = {}


@contextmanager
def quickly() -> Iterator[None]:
    """Let Numba compare flags as a whole, give functions short names and have signals wait for LLVM, while its compiler lock is held."""
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
